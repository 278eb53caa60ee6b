"""Trained models read back: from checkpoints, from a released folder, from the authors' format."""

import dataclasses
import types

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import runtime
from experiments.mathematics import convert as program
from experiments.mathematics import load, measures, train
from experiments.registry import open_model
from experiments.runtime import packing, torch_files
from tests.experiments.mathematics.small import MODEL, small, talkative
from tests.tp_transformer.small import draw
from tp_transformer import convert, mathematics

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_a_run_and_its_release_hold_the_trained_parameters(mathematics_run, tmp_path):
    config, workdir, results = mathematics_run
    result = results["tp_transformer"]
    trained = load.load(workdir)
    chex.assert_trees_all_equal(trained.params, result.params)
    assert (trained.step, trained.config) == (4, dataclasses.replace(config, accumulate=1))  # as was chosen
    assert trained.questions == workdir / train.QUESTIONS
    assert load.load(workdir, step=2).step == open_model(workdir, step=2).source["step"] == 2
    packing.pack(workdir, train.abstract_state(config), tmp_path / "released")
    released = load.load(tmp_path / "released")
    chex.assert_trees_all_equal(released.params, result.params)
    assert released.questions is None
    with pytest.raises(runtime.CheckpointError, match="got step 2, expected 4, the only one there"):
        load.load(tmp_path / "released", step=2)


@pytest.mark.slow
def test_a_released_run_can_be_continued(tmp_path):
    workdir = tmp_path / "first"
    train.main(small(), workdir=workdir)
    packing.pack(workdir, train.abstract_state(small()), tmp_path / "released")
    packing.unpack(tmp_path / "released", train.abstract_state(small()), tmp_path / "run")
    longer = small(steps=6)
    went_on = train.main(longer, workdir=tmp_path / "run")["tp_transformer"]
    straight = train.main(longer, workdir=None)["tp_transformer"]
    chex.assert_trees_all_equal(went_on.params, straight.params)


@pytest.mark.parametrize("size", [72, 73])
def test_the_authors_files_are_read_with_their_vocabulary(tmp_path, monkeypatch, size):
    """Of 73 symbols the first two are an unknown one and padding; of 72, padding alone."""
    released = size == 73
    vocabulary = mathematics.Vocabulary.released() if released else mathematics.DEFAULT
    model = MODEL.make(vocabulary)
    params = draw(model)
    torch_files.save(tmp_path / "model.pt", convert.to_torch(model, params))
    trained = load.load(tmp_path / "model.pt", num_heads=MODEL.num_heads)
    assert trained.vocabulary == vocabulary
    assert ("inferred" in trained.vocabulary.note) is released
    assert trained.model.vocab_size == size
    model_ids = {name: getattr(trained.model, name) for name in ("pad", "start", "end")}
    assert model_ids == vocabulary.special_ids
    chex.assert_trees_all_equal(jax.device_get(trained.params), jax.device_get(params))
    assert trained.encode(["1+1"])[0, :6].tolist() == [*vocabulary.encode("1+1"), vocabulary.pad]
    # What is decoded are the vocabulary's symbols.
    given = []
    monkeypatch.setattr(
        measures, "decode", lambda *arguments: given.append(arguments) or [[*vocabulary.encode("7")]]
    )
    assert trained.answer(["1+1"]) == ["7"]
    ((model, params, source),) = given
    assert (model, params) == (trained.model, trained.params)
    np.testing.assert_array_equal(source, trained.encode(["1+1"]))


def test_an_exported_model_is_described():
    """The manifest has the shapes, the range and the characters of what it is given and gives back."""
    vocabulary = mathematics.Vocabulary("0123456789+", pad=2, start=0, end=3, first=4)
    trained = talkative(vocabulary)
    exported = load.of_solver(trained)
    source = jnp.asarray(vocabulary.encode_batch(["1+2", "34"], 8))
    tokens = jax.eval_shape(exported.function, exported.params, {"source": source})["tokens"]
    shape = exported.outputs["tokens"].shape
    assert (shape[0], shape[1]) == (exported.inputs["source"].shape[0], tokens.shape[1])
    assert exported.inputs["source"].pad == vocabulary.pad
    assert exported.inputs["source"].range == (0, 14)
    assert exported.lengths == (40, 64, 96, 120, 162)
    assert exported.text == {
        "kind": "characters", "input": "source", "output": "tokens", "characters": "0123456789+",
        "pad": 2, "start": 0, "end": 3, "first": 4,
    }  # fmt: skip
    released = mathematics.Vocabulary.released()
    assert load.describe_characters(released)["note"] == released.note


def test_a_converted_file_is_a_folder_with_the_same_model(tmp_path, monkeypatch, capsys):
    """The program writes it, and back; the summary says that the ids are inferred, as does the folder."""
    vocabulary = mathematics.Vocabulary.released()
    trained = talkative(vocabulary, seed=4, boost=3.0)
    state = {
        f"module.{name}": array for name, array in convert.to_torch(trained.model, trained.params).items()
    }
    torch_files.save(tmp_path / "theirs.pt", state)
    values = types.SimpleNamespace(reverse=False, num_heads=MODEL.num_heads)
    monkeypatch.setattr(program.flags, "FLAGS", values)
    program.main(str(tmp_path / "theirs.pt"), str(tmp_path / "ours"))
    summary = capsys.readouterr().out
    assert "73 symbols (pad 1, start 2, end 3)\n" in summary
    assert vocabulary.note in summary
    assert set(program.folder_files(tmp_path / "ours")) == set((tmp_path / "ours").iterdir())
    found = load.load(tmp_path / "ours")
    assert (found.model, found.vocabulary) == (trained.model.clone(dtype=None), vocabulary)
    assert found.vocabulary.note == vocabulary.note
    chex.assert_trees_all_equal(found.params, trained.params)
    opened = open_model(tmp_path / "ours")
    assert opened.text == load.of_solver(trained).text
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "tokenizer.json").write_text("mine")
    for source, target, message in (
        ("theirs.pt", "ours", "config.json, .*already exists"),
        ("theirs.pt", "taken", "taken/tokenizer.json: already exists"),
        ("nothing.pt", "new", "weights: got .*nothing.pt"),
    ):
        with pytest.raises(ValueError, match=message):
            program.main(str(tmp_path / source), str(tmp_path / target))
    values.reverse = True
    program.main(str(tmp_path / "ours"), str(tmp_path / "back.pt"))
    back = torch_files.read_state_dict(tmp_path / "back.pt")
    chex.assert_trees_all_equal(back, convert.to_torch(trained.model, trained.params))


def test_what_cannot_be_loaded_or_asked(tmp_path):
    """Errors name the file, the flag or the argument."""
    trained = load.Trained(MODEL.make(), {})
    with pytest.raises(ValueError, match="questions: got none, expected at least one"):
        trained.answer([])
    with pytest.raises(ValueError, match=r"(?s)vocabulary: .*vocab_size: got 73, expected 72"):
        load.Trained(MODEL.make(), {}, mathematics.Vocabulary.released())
    model = MODEL.make(mathematics.Vocabulary("01"))
    torch_files.save(tmp_path / "model.pt", convert.to_torch(model, draw(model)))
    with pytest.raises(ValueError, match=r"model.pt: got 5 symbols, expected 72 or the authors' 73"):
        load.load(tmp_path / "model.pt", num_heads=MODEL.num_heads)
    with pytest.raises(ValueError, match=r"model.pt: .*num_heads = 3"):
        load.load(tmp_path / "model.pt", num_heads=3)
    with pytest.raises(ValueError, match=r"model.pt: got step 7, expected none"):
        load.load(tmp_path / "model.pt", step=7)


def test_questions_are_padded_to_the_shortest_of_few_lengths():
    trained = load.Trained(MODEL.make(), {})
    for longest, length in ((1, 40), (38, 40), (39, 64), (62, 64), (118, 120), (119, 162), (160, 162)):
        ids = np.asarray(trained.encode(["1", "2" * longest]))
        assert ids.shape == (2, length)
        np.testing.assert_array_equal(ids[0, :4], [*trained.vocabulary.encode("1"), 0])
        np.testing.assert_array_equal(ids[1, : longest + 2], trained.vocabulary.encode("2" * longest))


@pytest.mark.parametrize(
    ("question", "message"),
    [("1" * 161, "161 characters, expected at most 160"), ("1\N{MINUS SIGN}1", "1\N{MINUS SIGN}1")],
)
def test_questions_that_cannot_be_asked_are_reported(question, message):
    with pytest.raises(ValueError, match=message):
        load.Trained(MODEL.make(), {}).answer([question])


def test_what_holds_no_run_is_reported(tmp_path):
    with pytest.raises(ValueError, match=r"not a run of experiments\.mathematics"):
        load.load(tmp_path)
    model = MODEL.make().clone(vocab_size=50)
    torch_files.save(tmp_path / "m.pt", convert.to_torch(model, draw(model)))
    with pytest.raises(ValueError, match="got 50 symbols, expected 72 or the authors' 73"):
        load.load(tmp_path / "m.pt", num_heads=2)
