"""The gated Transformer: a TP-Transformer whose roles pass through a sigmoid, written out here."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util

from experiments.baselines import GatedTransformer
from tests.tp_transformer.small import build, draw, quickly, shapes
from tp_transformer import TPTransformer, Transformer, convert, decoding
from tp_transformer.model import EncoderDecoder, encoder_attention

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ROOT = Path(__file__).resolve().parents[3]
SOURCE = jnp.asarray([[1, 4, 7, 2, 0], [1, 3, 9, 5, 2]], jnp.int32)
TARGET = jnp.asarray([[1, 6, 8], [1, 10, 2]], jnp.int32)


def sigmoid(x):
    """Of NumPy arrays."""
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


def test_gates_replace_roles_in_attention_and_in_the_embedding():
    """With roles of constant value, whose gates are therefore constant as well, the TP-Transformer agrees."""
    gated, bound = build(GatedTransformer), build(TPTransformer)
    params = draw(gated)
    flat: Any = traverse_util.flatten_dict(params)
    assert {path for path in flat if "role" in path} >= {
        ("embedding", "role", "kernel"), ("encoder_0", "attention", "role", "bias"),
        ("decoder_0", "self_attention", "role", "bias"), ("decoder_0", "cross_attention", "role", "bias"),
    }  # fmt: skip
    same = dict(flat)
    for path in flat:
        if path[-2:] == ("role", "kernel"):
            flat[path] = same[path] = jnp.zeros_like(flat[path])
        if path[-2:] == ("role", "bias"):
            gate = sigmoid(flat[path])
            same[path] = jnp.asarray(2 * gate - 1 if path[0] == "embedding" else gate, jnp.float32)
    found, want = (
        quickly(model.apply)({"params": traverse_util.unflatten_dict(of)}, SOURCE, TARGET)
        for model, of in ((gated, flat), (bound, same))
    )
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def test_gates_are_computed_from_the_querying_cell():
    """sigmoid(W LN(z) + b), with z the embedding times its gates."""
    model = build(GatedTransformer, num_heads=2)
    params = draw(model)

    @quickly
    def run(params):
        gates = encoder_attention(model, {"params": params}, SOURCE)[0].roles
        return gates, model.apply({"params": params}, SOURCE, True, method="_embed")

    gates, embedded = run(params)
    assert gates is not None
    embedded = np.asarray(embedded, np.float64)
    layer = jax.tree.map(lambda x: np.asarray(x, np.float64), params["encoder_0"])
    spread = np.sqrt(embedded.var(-1, keepdims=True) + 1e-5)
    normed = (embedded - embedded.mean(-1, keepdims=True)) / spread
    normed = normed * layer["attention_norm"]["scale"] + layer["attention_norm"]["bias"]
    role = layer["attention"]["role"]
    want = sigmoid(normed @ role["kernel"] + role["bias"]).reshape(2, 5, 2, 8)
    np.testing.assert_allclose(gates, want, rtol=1e-3, atol=1e-4)


def test_it_has_a_tp_transformers_parameters():
    """Initialized alike from the same key, as those of the roles show; so they have as many."""
    kinds = GatedTransformer, TPTransformer
    assert shapes(build(kinds[0])) == shapes(build(kinds[1]))

    @quickly
    def inits(key):
        params = [build(kind).init(key, SOURCE, TARGET)["params"] for kind in kinds]
        flat: list[Any] = list(map(traverse_util.flatten_dict, params))
        return [{path: leaf for path, leaf in each.items() if "role" in path} for each in flat]

    one, other = jax.device_get(inits(jax.random.key(3)))
    assert len(one) == 8
    for path, leaf in one.items():
        np.testing.assert_array_equal(leaf, other[path])


def test_it_decodes_and_is_saved_as_the_others(tmp_path):
    """The cache changes no answer; a folder gives the same class; there is no such file of the authors."""
    model = build(GatedTransformer, start=1, end=2)
    params = draw(model)
    tokens = decoding.greedy_decode(model, params, SOURCE, max_length=4)
    plain, apply = np.eye(2, 5, dtype=np.int32)[[0, 0]], quickly(model.apply)
    for place in range(4):  # what follows is not seen
        logits = np.asarray(apply({"params": params}, SOURCE, plain))
        plain[:, place + 1] = logits[:, place].argmax(-1)
    for found, want in zip(np.asarray(tokens), plain, strict=True):
        ends = np.flatnonzero(np.isin(want[1:], (0, 2)))
        last = ends[0] + 2 if len(ends) else len(want)
        np.testing.assert_array_equal(found[:last], want[:last])
    model.save_pretrained(tmp_path, params)
    loaded, _ = EncoderDecoder.from_pretrained(tmp_path)
    assert loaded == model
    # PyTorch has no gates, and would compute other numbers with these parameters.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    assert not {"auto_map", "binds_roles"} & json.loads((tmp_path / "config.json").read_text()).keys()
    with pytest.raises(ValueError, match=r"model: got a GatedTransformer, expected a TPTransformer or a Tr"):
        convert.to_torch(model, params)
    assert convert.to_torch(build(Transformer), draw(build(Transformer)))


def test_without_its_module_the_error_names_it(tmp_path):
    """In a process that has imported the library alone."""
    model = build(GatedTransformer)
    model.save_pretrained(tmp_path, draw(model))
    code = (
        "import sys; from tp_transformer.model import EncoderDecoder\n"
        "EncoderDecoder.from_pretrained(sys.argv[1])"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert (
        "got architecture 'GatedTransformer', expected 'EncoderDecoder' or 'TPTransformer' or" in done.stderr
    )
    assert "import experiments.baselines.gated and use EncoderDecoder.from_pretrained" in done.stderr
    with pytest.raises(ValueError, match=r"import experiments\.baselines\.gated and use EncoderDecoder"):
        TPTransformer.from_pretrained(tmp_path)
