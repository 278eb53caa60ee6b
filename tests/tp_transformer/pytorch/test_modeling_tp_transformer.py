"""The PyTorch side of a directory: its settings are ours and, with PyTorch and transformers, it runs."""

import ast
import importlib
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tp_transformer import TPTransformer, Transformer, greedy_decode, pretrained
from tp_transformer.mathematics.vocabulary import Vocabulary

pytestmark = pytest.mark.usefixtures("compiled_quickly")

CODE = Path(pretrained.__file__).parent / "pytorch" / pretrained.CODE_FILE
VOCABULARY = Vocabulary("0123456789 +", pad=0, start=1, end=2, first=3)
QUESTIONS = ["1 + 2", "10 + 345"]


def made(cls: Any, folder: Path) -> tuple[Any, Any]:
    """Saves a small model whose parameters are all different from their initial values."""
    model = cls(vocab_size=VOCABULARY.size, features=12, filter_features=20, num_heads=3, num_layers=2,
                **VOCABULARY.special_ids)  # fmt: skip
    rng = np.random.default_rng(0)
    shapes = pretrained.shapes(model).items()
    table = {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes}
    params: Any = {}
    for name, array in table.items():
        *path, last = name.split(".")
        inner = params
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = array
    model.save_pretrained(folder, params, VOCABULARY)
    return model, params


def test_settings_are_those_of_the_jax_model():
    tree = ast.parse(CODE.read_text(encoding="utf-8"))
    (config,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "TPTransformerConfig")
    (init,) = (node for node in config.body if isinstance(node, ast.FunctionDef))
    names = [argument.arg for argument in init.args.args[1:]]
    defaults = dict(zip(names, map(ast.literal_eval, init.args.defaults), strict=True))
    ours = pretrained.settings(TPTransformer())
    unread = {"initialization", "attention_implementation", "remat", "dtype", "param_dtype"}
    assert defaults == {n: value for n, value in ours.items() if n not in unread} | {"binds_roles": True}


def test_a_folder_has_the_code_and_a_tokenizer(tmp_path):
    model, params = made(Transformer, tmp_path)
    assert (tmp_path / pretrained.CODE_FILE).read_bytes() == CODE.read_bytes()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "config.json", "model.safetensors", "vocabulary.json", pretrained.CODE_FILE,
        "tokenizer.json", "tokenizer_config.json", "generation_config.json",
    }  # fmt: skip
    tokenizers = importlib.import_module("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for question in QUESTIONS:
        wanted = [id for id in VOCABULARY.encode_batch([question])[0].tolist() if id != VOCABULARY.pad]
        assert tokenizer.encode(question).ids == wanted
        assert tokenizer.decode(wanted) == question
    found, again = Transformer.from_pretrained(tmp_path)
    assert found == model
    chex.assert_trees_all_equal(again, params)


@pytest.fixture(scope="module")
def transformers():
    """Without a network, and without asking whether the directory's code may run."""
    for needed in ("torch", "transformers"):
        pytest.importorskip(needed)
    return importlib.import_module("transformers")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cls", [TPTransformer, Transformer])
def test_pytorch_computes_the_same_and_saves_what_jax_opens(cls, transformers, tmp_path):
    """Logits of questions with padding, the loss, answers, and the directory, there and back."""
    torch = pytest.importorskip("torch")
    model, params = made(cls, tmp_path / "ours")
    theirs, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        tmp_path / "ours", output_loading_info=True, trust_remote_code=True, local_files_only=True
    )
    assert not any(info.values())
    theirs.eval()
    source = VOCABULARY.encode_batch(QUESTIONS)
    target = VOCABULARY.encode_batch(["3", "355"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours", trust_remote_code=True)
    given = tokenizer(QUESTIONS, padding=True, return_tensors="pt")
    np.testing.assert_array_equal(given["input_ids"].numpy(), source)
    logits = jax.jit(model.apply)({"params": params}, jnp.asarray(source), jnp.asarray(target))
    answers = torch.tensor(target, dtype=torch.long)
    for more in (given, {"input_ids": given["input_ids"]}):
        with torch.no_grad():
            found = theirs(**more, decoder_input_ids=answers).logits.numpy()
        np.testing.assert_allclose(found, logits, rtol=2e-5, atol=2e-5)
    labels = answers[:, 1:].masked_fill(answers[:, 1:] == VOCABULARY.pad, -100)
    made_targets = theirs.prepare_decoder_input_ids_from_labels(labels)
    np.testing.assert_array_equal(made_targets, target[:, :-1])
    loss = theirs(**given, labels=labels).loss
    shifted = np.asarray(jax.nn.log_softmax(logits[:, :-1]))
    there = target[:, 1:] != VOCABULARY.pad
    picked = np.take_along_axis(shifted, target[:, 1:, None], 2)[..., 0]
    np.testing.assert_allclose(loss.item(), -picked[there].mean(), rtol=1e-5)
    loss.backward()
    assert all(parameter.grad is not None for parameter in theirs.parameters())
    want = np.asarray(greedy_decode(model, params, jnp.asarray(source), max_length=8))
    found = theirs.generate(**given, max_new_tokens=8, do_sample=False).numpy()
    for row, wanted in zip(found[:, 1:], want, strict=True):
        assert VOCABULARY.decode(row.tolist()) == VOCABULARY.decode(wanted.tolist())
    theirs.save_pretrained(tmp_path / "theirs")
    again, same = cls.from_pretrained(tmp_path / "theirs")
    assert again.clone(dtype=None) == model  # `transformers` writes the type of the parameters
    chex.assert_trees_all_equal(same, jax.tree.map(jnp.asarray, params))
