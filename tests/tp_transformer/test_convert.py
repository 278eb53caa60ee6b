"""Conversion of the authors' checkpoints: names, files in both formats, round trips."""

import collections
import contextlib
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.runtime import torch_files
from tests.experiments.runtime import torch_pickles
from tests.tp_transformer import small
from tests.tp_transformer.small import MODELS, NAMES, build, draw
from tp_transformer import TPTransformer, Transformer, convert


@pytest.mark.parametrize("name", NAMES)
def test_there_and_back(name):
    """A recorded state dict survives conversion to our parameters and back exactly."""
    state = small.recorded_state(name)
    model, params = small.recorded_model(name)
    back = convert.to_torch(model, params)
    assert set(back) == set(state)
    for key, want in state.items():
        assert back[key].dtype == want.dtype
        # Their table of positions is computed in float32.
        np.testing.assert_allclose(back[key], want, atol=1e-5 if key == convert.POSITIONS else 0, rtol=0)


@pytest.mark.parametrize("architecture", MODELS)
def test_back_and_there(architecture):
    """Our parameters survive the round trip, for a model whose sizes all differ."""
    model = build(architecture, num_layers=2, features=12, filter_features=20, num_heads=3, vocab_size=7)
    params = draw(model)
    found, again = convert.from_torch(convert.to_torch(model, params), num_heads=3)
    assert found == model
    chex.assert_trees_all_equal(again, params)


@pytest.mark.parametrize(
    ("form", "where"),
    [
        (torch_pickles.zipped, "alone"),
        (torch_pickles.legacy, "model"),
        (torch_pickles.zipped, "state_dict"),
    ],
)
def test_files(tmp_path, form, where):
    """Reads a state dict or a checkpoint, from several GPUs or one, also in half precision."""
    state = small.recorded_state("transformer")
    tensors = collections.OrderedDict(
        (f"module.{name}", torch_pickles.tensor(array)) for name, array in state.items()
    )
    checkpoint = {"global_step": 7, where: tensors, "optimizer": {"state": {}}}
    path = tmp_path / "saved.pt"
    path.write_bytes(form(tensors if where == "alone" else checkpoint))
    model, params = convert.from_torch(torch_files.read_state_dict(path), num_heads=4, pad=1)
    assert (type(model), model.pad) == (Transformer, 1)
    chex.assert_trees_all_equal(params, small.recorded_model("transformer")[1])


def test_our_file(tmp_path):
    """Files written for the authors' code can be read back."""
    model, params = small.recorded_model("tp_transformer")
    torch_files.save(tmp_path / "ours.pt", convert.to_torch(model, params, max_positions=50))
    state = torch_files.read_state_dict(tmp_path / "ours.pt")
    assert state[convert.POSITIONS].shape == (1, 50, 32)
    found, again = convert.from_torch(state, num_heads=4)
    assert found == model
    chex.assert_trees_all_equal(again, params)


def test_half_precision_becomes_float32():
    """float16 and bfloat16 weights become float32 parameters exactly."""
    state = {name: array.astype(jnp.bfloat16) for name, array in small.recorded_state("transformer").items()}
    _, params = convert.from_torch(state, num_heads=4)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    np.testing.assert_array_equal(
        params["embedding"]["tokens"], state["embedding.tok_embedding.weight"].astype(np.float32)
    )


def changed(**arrays: Any) -> dict[str, np.ndarray]:
    """Returns a recorded state dict with some arrays replaced, or removed where None."""
    state = {**small.recorded_state("tp_transformer"), **arrays}
    return {name: array for name, array in state.items() if array is not None}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"encoder.layers.1.MHA.W_r.bias": None},
            r"does not fit TPTransformer:\n  encoder.layers.1.MHA.W_r.bias: missing, expected \(32,\)$",
        ),
        ({"decoder.extra": np.zeros(3)}, r"\n  decoder.extra: got \(3,\), expected no such parameter$"),
        (
            {"decoder.layers.0.densefilter.linear1.weight": np.zeros((32, 64))},
            r"decoder.layers.0.densefilter.linear1.weight: got shape \(32, 64\), expected \(64, 32\)",
        ),
        ({"embedding.pe": np.zeros((1, 200, 32), np.float32)}, "embedding.pe: .* expected the sinusoids"),
        ({"embedding.pe": np.zeros(3, np.float32)}, "embedding.pe: .* expected the sinusoids"),
        ({"embedding.pe": convert.sinusoids(50, 32)[None] + 0.015}, "expected the sinusoids"),
        ({"embedding.tok_embedding.weight": None}, "got no matrix 'embedding.tok_embedding.weight'"),
        ({"embedding.tok_embedding.weight": np.zeros(3)}, "got no matrix"),
        ({"encoder.layers.0.densefilter.linear1.weight": np.zeros(())}, "got no matrix"),
    ],
)
def test_what_does_not_fit(arrays, message):
    """Errors state names and shapes."""
    with pytest.raises(ValueError, match=message):
        convert.from_torch(changed(**arrays), num_heads=4)


def test_all_that_does_not_fit_is_named_at_once():
    """Missing and unexpected names, shapes, and the table of positions."""
    wrong = {
        "encoder.layers.1.MHA.W_r.bias": None,
        "extra": np.zeros(3),
        "encoder.layers.0.layernorm1.bias": np.zeros(31),
        "decoder.layers.0.layernorm1.bias": np.zeros((2, 2)),
        "embedding.pe": np.zeros(3, np.float32),
    }
    with pytest.raises(ValueError, match="state_dict: does not fit TPTransformer") as caught:
        convert.from_torch(changed(**wrong), num_heads=4)
    assert [line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:]] == list(wrong)


@pytest.mark.parametrize(("change", "fits"), [(0.009, True), (-0.009, True), (0.02, False), (-0.02, False)])
def test_a_table_of_positions_may_be_rounded_only(change, fits):
    table = np.array(small.recorded_state("tp_transformer")[convert.POSITIONS])
    table[0, 3, 2] += change
    expected = pytest.raises(ValueError, match=r"expected the sinusoids of \(2\)")
    with contextlib.nullcontext() if fits else expected:
        convert.from_torch(changed(**{convert.POSITIONS: table}), num_heads=4)


def test_heads_that_do_not_fit():
    """The number of heads cannot be inferred from shapes, but an impossible one is rejected."""
    with pytest.raises(ValueError, match="num_heads = 5"):
        convert.from_torch(small.recorded_state("transformer"), num_heads=5)


def test_files_of_other_things(tmp_path):
    """A PyTorch file that contains no state dict is rejected."""
    path = tmp_path / "saved.pt"
    for value, message in (
        ({"weights": {}}, r"saved\.pt: got a mapping of 'weights', expected a state dict"),
        ({}, "got an empty mapping"),
        ([1, 2], "got a list"),
        ({"model": {"a": 3}}, "got a mapping of 'model'"),
    ):
        path.write_bytes(torch_pickles.zipped(value))
        with pytest.raises(ValueError, match=message):
            torch_files.read_state_dict(path)


def test_architectures_are_distinguished():
    """The embedding's role map identifies the architecture."""
    assert [type(small.recorded_model(name)[0]) for name in NAMES] == [TPTransformer, Transformer]
