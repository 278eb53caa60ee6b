"""Models in a directory: saving and loading, with the vocabulary, and files that are missing or damaged."""

import json
import shutil

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from tests import layouts, pushed
from tests.tp_transformer.small import MODELS, build, draw, tokens
from tp_transformer import TPTransformer, Transformer, decoding, pretrained
from tp_transformer.mathematics import Vocabulary
from tp_transformer.mathematics.vocabulary import INFERRED
from tp_transformer.model import EncoderDecoder

pytestmark = pytest.mark.usefixtures("compiled_quickly")

VOCABULARY = Vocabulary("0123456789+", pad=2, start=0, end=3, first=5, note="made up")


def make(architecture=TPTransformer, **fields):
    """A small model of the vocabulary's symbols, and its parameters."""
    model = build(architecture, **{"vocab_size": VOCABULARY.size, **VOCABULARY.special_ids, **fields})
    return model, draw(model)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Saves a TP-Transformer with its vocabulary; returns the directory and the parameters."""
    directory, (model, params) = tmp_path_factory.mktemp("saved"), make()
    model.save_pretrained(directory, params, VOCABULARY)
    return directory, params


@pytest.fixture
def saved(original, tmp_path):
    """Returns a copy of the directory, which a test may damage, and the parameters."""
    return shutil.copytree(original[0], tmp_path / "model"), original[1]


@pytest.mark.parametrize("architecture", MODELS)
def test_there_and_back(architecture, tmp_path):
    """Fields, every number and the characters; also through the common base class."""
    model, params = make(architecture, dtype=jnp.bfloat16, initialization="xavier")
    model.save_pretrained(tmp_path / "new" / "model", params, VOCABULARY)
    for loader in (architecture, EncoderDecoder):
        found, again = loader.from_pretrained(tmp_path / "new" / "model")
        assert type(found) is architecture
        assert found == model
        chex.assert_trees_all_equal(again, params)
    vocabulary = Vocabulary.load(tmp_path / "new" / "model")
    assert (vocabulary, vocabulary.note) == (VOCABULARY, "made up")
    assert sorted(path.name for path in (tmp_path / "new" / "model").iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "modeling_tp_transformer.py",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocabulary.json",
    ]


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_numbers_are_those_of_the_arrays_however_they_lie(layout, tmp_path):
    model, params = make()
    params = jax.tree.map(lambda leaf: layouts.LAYOUTS[layout](np.asarray(leaf)), params)
    model.save_pretrained(tmp_path, params)
    chex.assert_trees_all_equal(TPTransformer.from_pretrained(tmp_path)[1], params)


def test_what_is_written(saved):
    directory, params = saved
    described = json.loads((directory / "config.json").read_text())
    assert (described["model_type"], described["architectures"]) == ("tp_transformer", ["TPTransformer"])
    assert (described["pad"], described["start"], described["end"]) == (2, 0, 3)
    assert (described["param_dtype"], described["dtype"]) == ("float32", None)
    arrays = safetensors.numpy.load_file(directory / "model.safetensors")
    np.testing.assert_array_equal(arrays["embedding.tokens"], params["embedding"]["tokens"])
    with safetensors.safe_open(directory / "model.safetensors", "numpy") as file:
        assert file.metadata() == {"format": "pt"}  # without it other libraries refuse the file


@pytest.mark.unchecked  # what stands in returns the ids, not answers
def test_decoding_uses_the_ids_in_the_directory(saved, monkeypatch):
    """By default those of the vocabulary; others may be given, and a model without them needs them."""
    model, params = TPTransformer.from_pretrained(saved[0])
    source = tokens(2, 4, low=5, high=16)
    for search, inner in ((decoding.greedy_decode, "_greedy_decode"), (decoding.beam_search, "_beam_search")):
        monkeypatch.setattr(decoding, inner, lambda *_, start, end, **options: (start, end))
        assert search(model, params, source, max_length=3) == (0, 3)
        assert search(model, params, source, max_length=3, start=4, end=5) == (4, 5)
        with pytest.raises(ValueError, match="end: got None, expected an id, since the model has none"):
            search(model.clone(end=None), params, source, max_length=3)


def test_without_a_vocabulary(tmp_path):
    """Symbols need not be characters."""
    model, params = make()
    model.save_pretrained(tmp_path, params)
    assert TPTransformer.from_pretrained(tmp_path, dtype=jnp.bfloat16)[0].dtype == jnp.bfloat16
    _, low = TPTransformer.from_pretrained(tmp_path, param_dtype=jnp.bfloat16)
    assert {leaf.dtype for leaf in jax.tree.leaves(low)} == {jnp.dtype("bfloat16")}
    with pytest.raises(ValueError, match=r"vocabulary.json: got no such file, expected a vocabulary"):
        Vocabulary.load(tmp_path)


def test_what_does_not_belong_to_the_model_is_not_written(tmp_path):
    """All mismatches are reported, and no directory is created."""
    model, params = make()
    del params["embedding"]["role"]["bias"]
    with pytest.raises(ValueError, match=r"params: does not fit TPTransformer:\n  embedding.role.bias: miss"):
        model.save_pretrained(tmp_path / "model", params, VOCABULARY)
    model, params = make()
    with pytest.raises(ValueError, match="does not fit") as caught:
        model.save_pretrained(tmp_path / "model", params, Vocabulary())
    for line in ("vocab_size: got 72, expected 16", "pad: got 0, expected 2", "start: got 1, expected 0"):
        assert line in str(caught.value)
    assert not (tmp_path / "model").exists()


def test_the_inferred_ids_say_so(tmp_path):
    Vocabulary.released().save(tmp_path)
    assert Vocabulary.load(tmp_path).note == INFERRED
    assert "inferred" in INFERRED


def edit(name, **changes):
    """Returns a function that changes a JSON file of a directory."""

    def change(directory):
        path = directory / name
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def truncate(directory):
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda directory: (directory / "config.json").unlink(), "config.json: got no such file"),
        (edit("config.json", model_type="bert"), "got model_type 'bert', expected 'tp_transformer'"),
        (
            edit("config.json", architectures=["Transformer"]),
            "got architecture 'Transformer', expected 'TPTransformer'",
        ),
        (edit("config.json", layers=3), "config.json: fields: got 'layers', expected only vocab_size"),
        (edit("config.json", z=1, b=2, y=3, a=4), "config.json: fields: got 'a', 'b', 'y', 'z', expected"),
        (edit("config.json", num_heads=5), "config.json: features: got 16, expected an even multiple of num"),
        (edit("config.json", dtype="float31"), "config.json: .*float31"),
        (edit("config.json", end=0), r"config.json: pad, start, end: got \(2, 0, 0\), expected different"),
        (edit("config.json", vocab_size=17), r"embedding.tokens: got shape \(16, 16\), expected \(17, 16\)"),
        (truncate, "model.safetensors: got a damaged file"),
    ],
)
def test_files_that_are_missing_or_damaged(saved, damage, message):
    """The error names the file."""
    directory, _ = saved
    damage(directory)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        TPTransformer.from_pretrained(directory)


@pytest.mark.parametrize("changes", [{"pad": "2"}, {"more": 1}, {"first": 2}, {"characters": "00"}])
def test_a_damaged_vocabulary_is_named(saved, changes):
    directory, _ = saved
    edit("vocabulary.json", **changes)(directory)
    with pytest.raises(ValueError, match=r"vocabulary\.json: "):
        Vocabulary.load(directory)


def test_another_architecture_is_refused_by_its_own_class(saved):
    with pytest.raises(ValueError, match="got architecture 'TPTransformer', expected 'Transformer'"):
        Transformer.from_pretrained(saved[0])


class Own(TPTransformer):
    """A user's class."""


class OwnOfOwn(Own):
    """And one of that."""


@pytest.mark.parametrize("cls", [Own, OwnOfOwn])
def test_classes_of_classes_are_loaded_through_those_they_are_of(cls, tmp_path):
    model, params = make(cls)
    model.save_pretrained(tmp_path, params)
    for loader in (cls, *cls.__bases__, TPTransformer, EncoderDecoder):
        found, again = loader.from_pretrained(tmp_path)
        assert type(found) is cls
        chex.assert_trees_all_equal(again, params)
    with pytest.raises(ValueError, match=f"got architecture '{cls.__name__}', expected 'Transformer'"):
        Transformer.from_pretrained(tmp_path)


def test_what_is_pushed_is_what_is_saved(monkeypatch):
    model = build(TPTransformer)
    pushed.check(monkeypatch, pretrained.hub, model, draw(model))
