"""Models in a directory: saving and loading, into another class too, and missing or damaged files."""

import json

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors
import safetensors.numpy

import folnet
from folnet import FOLNet, FOLNetForPreTraining, FOLNetForSequenceClassification, parameters, pretrained
from tests import layouts, pushed
from tests.folnet import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

CONFIG = small.config(operators="j.a")
IDS = small.tokens()[0]
CLASSES = (
    FOLNet,
    FOLNetForPreTraining,
    folnet.FOLNetForMaskedLM,
    FOLNetForSequenceClassification,
    folnet.FOLNetForTokenClassification,
    folnet.FOLNetForMultipleChoice,
    folnet.FOLNetForQuestionAnswering,
)


@pytest.fixture
def saved(tmp_path):
    """Saves a model for pretraining; returns the directory and the parameters."""
    model = FOLNetForPreTraining(CONFIG)
    params = small.draw(model)
    model.save_pretrained(tmp_path / "model", params)
    return tmp_path / "model", params


@pytest.mark.parametrize("cls", CLASSES)
def test_there_and_back(cls, tmp_path):
    """Settings and every number, for each class; the directory has no other files."""
    model = cls(CONFIG.replace(num_labels=3, relation_vocab_size=2))
    params = small.draw(model)
    model.save_pretrained(tmp_path / "new" / "model", params)
    found, again = cls.from_pretrained(tmp_path / "new" / "model")
    assert found == model
    chex.assert_trees_all_equal(again, params)
    assert sorted(path.name for path in (tmp_path / "new" / "model").iterdir()) == [
        "config.json",
        "model.safetensors",
        "modeling_folnet.py",
    ]


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_numbers_are_those_of_the_arrays_however_they_lie(layout, tmp_path):
    model = FOLNet(CONFIG)
    params = small.draw(model)
    params = jax.tree.map(lambda leaf: layouts.LAYOUTS[layout](np.asarray(leaf)), params)
    model.save_pretrained(tmp_path, params)
    chex.assert_trees_all_equal(FOLNet.from_pretrained(tmp_path)[1], params)


def test_what_is_written(saved):
    """Names are those of Hugging Face, parameters named by their path."""
    directory, params = saved
    described = json.loads((directory / "config.json").read_text())
    assert (described["model_type"], described["architectures"]) == ("folnet", ["FOLNetForPreTraining"])
    assert described["hidden_size"] == 14
    arrays = safetensors.numpy.load_file(directory / "model.safetensors")
    np.testing.assert_array_equal(arrays["predictions.bias"], params["predictions"]["bias"])
    assert "folnet.reasoner.layers_0.join.premise.weight" in arrays
    with safetensors.safe_open(directory / "model.safetensors", "numpy") as file:
        assert file.metadata() == {"format": "pt"}  # without it other libraries refuse the file


def test_keys_of_other_programs_and_names_of_labels(tmp_path):
    """Saving a loaded model keeps both; with another number of labels their names are dropped."""
    model = FOLNetForSequenceClassification(CONFIG.replace(num_labels=3, labels=("no", "perhaps", "yes")))
    model.save_pretrained(tmp_path, small.draw(model))
    path = tmp_path / "config.json"
    described = json.loads(path.read_text())
    assert described["id2label"] == {"0": "no", "1": "perhaps", "2": "yes"}
    assert described["label2id"] == {"no": 0, "perhaps": 1, "yes": 2}
    assert not {"labels", "foreign"} & set(described)
    others = {"transformers_version": "5.0", "custom_pipelines": {"a": "b"}}
    path.write_text(json.dumps(described | others))
    found, params = FOLNetForSequenceClassification.from_pretrained(tmp_path)
    assert found.config.labels == ("no", "perhaps", "yes")
    found.save_pretrained(tmp_path / "again", params)
    assert json.loads((tmp_path / "again" / "config.json").read_text()) == described | others
    assert found.config.replace(num_labels=2).labels == ()
    with pytest.raises(ValueError, match=r"labels: got .* expected num_labels = 3 different names"):
        found.config.replace(labels=("no", "yes", "no"))
    # The numbers say which name is whose, not their order in the file.
    path.write_text(json.dumps(described | {"id2label": {"2": "yes", "0": "no", "1": "perhaps"}}))
    assert pretrained.read_config(tmp_path)[0].labels == ("no", "perhaps", "yes")


def test_another_class_takes_the_encoder(saved):
    """Its own head is initialized with a key and an error without one; settings can be changed."""
    directory, params = saved
    with pytest.raises(ValueError, match=r"model.safetensors: does not fit FOLNetFor.*\n  classifier"):
        FOLNetForSequenceClassification.from_pretrained(directory)
    model, found = FOLNetForSequenceClassification.from_pretrained(
        directory, key=small.key(), num_labels=3, dtype="bfloat16"
    )
    assert found["classifier"]["weight"].shape == (14, 3)
    assert model.config.dtype == "bfloat16"
    chex.assert_trees_all_equal(found["folnet"], params["folnet"])
    chex.assert_trees_all_equal(FOLNet.from_pretrained(directory)[1], params["folnet"])


@pytest.mark.parametrize("other", [folnet.FOLNetForTokenClassification, folnet.FOLNetForMultipleChoice])
def test_the_head_of_another_class_is_left_out(tmp_path, other):
    """Also if it has the same name."""
    model = other(CONFIG.replace(num_labels=3))
    params = small.draw(model)
    model.save_pretrained(tmp_path, params)
    with pytest.raises(
        ValueError, match=r"\n  classifier.bias: missing, expected \(3,\)\n  classifier.weight"
    ):
        FOLNetForSequenceClassification.from_pretrained(tmp_path)
    _, found = FOLNetForSequenceClassification.from_pretrained(tmp_path, key=small.key())
    assert not np.any(found["classifier"]["bias"])
    chex.assert_trees_all_equal(found["folnet"], params["folnet"])
    # A folder that does not say its class has the heads that its parameters are named for.
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "architectures": None}))
    chex.assert_trees_all_equal(other.from_pretrained(tmp_path)[1], params)


class Own(FOLNetForSequenceClassification):
    """A user's class."""


@pytest.mark.parametrize(
    ("saved_as", "loaded_as"),
    [(Own, FOLNetForSequenceClassification), (FOLNetForSequenceClassification, Own)],
)
def test_a_class_derived_from_another_has_its_head(saved_as, loaded_as, tmp_path):
    """Either takes the other's; a class for another purpose does not."""
    model = saved_as(CONFIG.replace(num_labels=3))
    params = small.draw(model)
    model.save_pretrained(tmp_path, params)
    chex.assert_trees_all_equal(loaded_as.from_pretrained(tmp_path)[1], params)
    with pytest.raises(ValueError, match=r"\n  classifier.bias: missing"):
        folnet.FOLNetForTokenClassification.from_pretrained(tmp_path)


def test_parameters_of_16_bits(tmp_path):
    """They are drawn, saved and loaded as such, computed with as their values in 32 bits, and converted."""
    cls = FOLNetForPreTraining
    model = cls(CONFIG.replace(param_dtype="bfloat16"))
    initial = jax.eval_shape(model.init, jax.random.key(0), IDS)["params"]
    assert {leaf.dtype for leaf in jax.tree.leaves(initial)} == {jnp.bfloat16.dtype}
    params = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, jnp.bfloat16)), small.draw(model))
    model.save_pretrained(tmp_path, params)
    assert json.loads((tmp_path / "config.json").read_text())["param_dtype"] == "bfloat16"
    with safetensors.safe_open(tmp_path / "model.safetensors", "numpy") as file:
        assert {file.get_slice(name).get_dtype() for name in file.keys()} == {"BF16"}  # noqa: SIM118
    found, again = cls.from_pretrained(tmp_path)
    assert found == model
    chex.assert_trees_all_equal(again, params)
    wide, same = cls.from_pretrained(tmp_path, param_dtype="float32")
    assert {leaf.dtype for leaf in jax.tree.leaves(same)} == {jnp.float32.dtype}
    chex.assert_trees_all_equal(same, jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params))
    run = small.quickly(lambda model, params: model.apply({"params": params}, IDS)[0], static_argnums=0)
    np.testing.assert_array_equal(run(model, params), run(wide, same))
    with pytest.raises(ValueError, match="param_dtype: got 'int8', expected the name of a floating-point"):
        CONFIG.replace(param_dtype="int8")


def test_a_save_over_another_is_whole(saved, monkeypatch):
    """If the disk fails, the previous files remain, and no partial one."""
    directory, params = saved
    before = {path.name: path.read_bytes() for path in directory.iterdir()}

    def fails(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(OSError, match="no space left"):
        FOLNetForPreTraining(CONFIG).save_pretrained(
            directory, jax.tree.map(lambda leaf: np.asarray(leaf) + 1, params)
        )
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_parameters_of_another_model_are_not_written(tmp_path):
    """All mismatches are reported, and no directory is created."""
    params = small.draw(FOLNet(CONFIG))
    del params["pooler"]["bias"]
    params["more"] = params["pooler"]["weight"]
    with pytest.raises(ValueError, match=r"(?s)pooler.bias: missing.*more: got \(14, 14\), expected no such"):
        FOLNet(CONFIG).save_pretrained(tmp_path / "model", params)
    assert not (tmp_path / "model").exists()


def test_misfits_are_reported_at_once(saved):
    """The error names the file."""
    directory, _ = saved
    path = directory / "model.safetensors"
    arrays = safetensors.numpy.load_file(path)
    del arrays["predictions.bias"], arrays["folnet.pooler.bias"]
    arrays["folnet.pooler.weight"] = np.zeros((3, 14), np.float32)
    arrays["folnet.extra"] = np.zeros(2, np.float32)
    safetensors.numpy.save_file(arrays, path)
    with pytest.raises(ValueError, match="does not fit") as caught:
        FOLNetForPreTraining.from_pretrained(directory)
    for line in (
        str(path),
        "predictions.bias: missing, expected (19,)",
        "folnet.pooler.bias: missing, expected (14,)",
        "folnet.extra: got (2,), expected no such parameter",
        "folnet.pooler.weight: got shape (3, 14), expected (14, 14)",
    ):
        assert line in str(caught.value)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-20])


def scribble(path):
    path.write_bytes(b"\xff\xfe" * 40)


def not_ours(path):
    path.write_text('{"model_type": "bert"}')


def misspelt(path):
    path.write_text('{"model_type": "folnet", "hidden_sizes": 3}')


def misnumbered(path):
    path.write_text('{"model_type": "folnet", "id2label": {"1": "no", "2": "yes"}}')


def empty_list(path):
    path.write_text("[]")


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("config.json", lambda path: path.unlink(), "got no such file"),
        ("config.json", truncate, "got a damaged file"),
        ("config.json", scribble, "got a damaged file"),
        ("config.json", empty_list, r"got model_type \[\], expected 'folnet'"),
        ("config.json", not_ours, "got model_type 'bert', expected 'folnet'"),
        ("config.json", misspelt, "fields: got 'hidden_sizes', expected 'hidden_size'"),
        ("config.json", misnumbered, "id2label: got {'1': 'no', '2': 'yes'}, expected a name for each"),
        ("model.safetensors", lambda path: path.unlink(), "got no such file"),
        ("model.safetensors", truncate, "got a damaged file"),
        ("model.safetensors", scribble, "got a damaged file"),
    ],
)
def test_files_that_are_missing_or_damaged(saved, name, damage, message):
    """The error names the file."""
    directory, _ = saved
    damage(directory / name)
    with pytest.raises(ValueError, match=rf"(?s){name}.*{message}"):
        FOLNetForPreTraining.from_pretrained(directory)


@pytest.mark.parametrize("size", [15, 19, 20, 23])
def test_words_are_added_and_removed(size):
    """In the table and in the bias of the words; the model of that size takes the parameters."""
    model = folnet.FOLNetForMaskedLM(CONFIG)
    params = small.draw(model)
    more, resized = model.resize_token_embeddings(params, size, key=small.key())
    assert more == folnet.FOLNetForMaskedLM(CONFIG.replace(vocab_size=size))
    found, before = parameters.flatten(resized), parameters.flatten(params)
    assert {name: np.shape(array) for name, array in found.items()} == parameters.shapes(more)
    kept = min(size, CONFIG.vocab_size)
    for name in ("folnet.embeddings.word", "predictions.bias"):
        np.testing.assert_array_equal(found.pop(name)[:kept], before.pop(name)[:kept])
    chex.assert_trees_all_equal(found, before)
    new = np.asarray(parameters.flatten(resized)["folnet.embeddings.word"])[19:]
    assert not new.size or 0.1 < np.std(new) / CONFIG.initializer_range < 2
    if size > 19:
        more_words = f"key: got None, expected a key that initializes {size - 19} more words"
        with pytest.raises(ValueError, match=more_words):
            model.resize_token_embeddings(params, size)
    else:
        chex.assert_trees_all_equal(model.resize_token_embeddings(params, size)[1], resized)


def test_what_is_pushed_is_what_is_saved(monkeypatch):
    model = folnet.FOLNetForMaskedLM(CONFIG)
    pushed.check(monkeypatch, pretrained.hub, model, small.draw(model))
