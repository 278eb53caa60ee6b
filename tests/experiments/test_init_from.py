"""Runs of each room start from its own weights, and from those that its programs convert."""

import dataclasses
import functools
import json
from typing import Any

import chex
import jax
import numpy as np
import pytest

from experiments import runtime
from experiments.folnet_finetune import config as finetuning
from experiments.folnet_finetune import model as finetuned
from experiments.folnet_pretrain import load as pretrained
from experiments.folnet_pretrain import train as folnet_pretrain
from experiments.kinship import train as kinship
from experiments.llrnn.config import get_config as llrnn
from experiments.mathematics import load
from experiments.mathematics import train as mathematics
from experiments.runtime import starting
from experiments.runtime.training import TrainState
from folnet import parameters
from tests.experiments.kinship.small import small as small_kinship
from tests.experiments.mathematics.small import MODEL
from tests.experiments.mathematics.small import small as small_mathematics
from tests.tp_transformer.small import draw
from tp_transformer.mathematics import DEFAULT, Vocabulary


def zeros(abstract: Any) -> Any:
    """A state of zeros with the shapes of another."""

    def zero(leaf):
        return jax.device_put(np.zeros(leaf.shape, leaf.dtype), leaf.sharding)

    return jax.tree.map(zero, abstract)


@pytest.mark.parametrize("kind", ["run", "pretrained"])
def test_mathematics(mathematics_run, tmp_path, kind):
    """Another architecture gets what both have; the roles' maps are named."""
    config, workdir, results = mathematics_run
    params, path = results["tp_transformer"].params, workdir
    if kind == "pretrained":
        path = tmp_path / "model"
        load.load(workdir).save_pretrained(path)
    abstract = mathematics.abstract_state(config)
    start = starting.read(str(path), abstract, optimizer=kind == "run")
    assert start.misfits == ()
    state = start.put(zeros(abstract))
    chex.assert_trees_all_equal(state.params, params)
    wanted = results["tp_transformer"].state.opt_state
    chex.assert_trees_all_equal(state.opt_state, wanted if kind == "run" else zeros(abstract).opt_state)
    assert int(state.step) == 0
    transformer = dataclasses.replace(config.model, name="transformer")
    other = mathematics.abstract_state(dataclasses.replace(config, model=transformer))
    other = starting.read(str(path), other)
    assert "params/embedding/role/kernel: got (16, 16), expected no such parameter" in other.misfits
    assert "params/embedding/tokens" in other.arrays


@pytest.mark.parametrize("kind", ["authors", "permuted", "fewer", "own"])
def test_rows_of_symbols_are_matched_by_character(tmp_path, kind, capsys):
    """Of the authors' 73 symbols, of 72 in another order, of fewer, and of ours."""
    ours, characters = DEFAULT, DEFAULT.characters
    theirs = {
        "authors": Vocabulary.released(),
        "permuted": Vocabulary(characters[::-1], pad=2, start=0, end=1),
        "fewer": Vocabulary(characters[5:]),
        "own": ours,
    }[kind]
    model = MODEL.make(theirs)
    params = draw(model)
    model.save_pretrained(tmp_path / "model", params, theirs)
    config = small_mathematics(init_from=str(tmp_path / "model"))
    abstract = mathematics.abstract_state(config)
    start = starting.read(config.init_from, abstract, reordered=config.reordered)
    found = start.put(zeros(mathematics.abstract_state(config))).params
    table, rows = np.asarray(found["embedding"]["tokens"]), np.asarray(params["embedding"]["tokens"])
    assert table.shape == (72, 16)
    for name, symbol in ours.special_ids.items():
        np.testing.assert_array_equal(table[symbol], rows[theirs.special_ids[name]])
    for character in theirs.characters:
        np.testing.assert_array_equal(table[ours.encode(character)[1]], rows[theirs.encode(character)[1]])
    chex.assert_trees_all_equal(found["encoder_0"], params["encoder_0"])
    lines = {
        "authors": ("params/embedding/tokens: got a row of id 0 there, expected none of such a symbol",),
        "fewer": tuple(f"params/embedding/tokens: no row of {c!r}, expected one" for c in characters[:5]),
    }.get(kind, ())
    assert start.misfits == lines
    if kind == "fewer":  # their initial rows stay
        np.testing.assert_array_equal(table[ours.first : ours.first + 5], np.zeros((5, 16)))
    assert (start.note, "inferred" in capsys.readouterr().err) == (theirs.note, kind == "authors")
    start.record(tmp_path)
    assert json.loads((tmp_path / starting.RECORD).read_text()).get("note", "") == theirs.note


def test_a_table_that_does_not_fit_its_vocabulary_is_refused(tmp_path):
    model = MODEL.make()
    model.save_pretrained(tmp_path, draw(model), DEFAULT)
    Vocabulary.released().save(tmp_path)
    config = small_mathematics(init_from=str(tmp_path))
    with pytest.raises(
        runtime.WorkdirError, match="got 72 rows of symbols, expected 73 as of its vocabulary"
    ):
        mathematics.main(config, workdir=None)


def test_folnet_pretraining_and_fine_tuning(folnet_run, tmp_path):
    """A fine-tuning run takes a pretraining run's encoder and names the heads."""
    config, workdir, results = folnet_run
    params = results[config.model.name].params
    pretrained.load(workdir).save_pretrained(tmp_path / "model")
    abstract = folnet_pretrain.abstract_state(config)
    for path in (workdir, tmp_path / "model"):
        chex.assert_trees_all_equal(starting.read(str(path), abstract).put(zeros(abstract)).params, params)
    tuned = finetuned.make(finetuning.Config(task="rte", length=16, model=config.resolved().model))
    shapes = jax.eval_shape(finetuned.make_init(tuned), jax.random.key(0))
    where = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    make = functools.partial(jax.ShapeDtypeStruct, sharding=where)
    shapes = jax.tree.map(lambda leaf: make(leaf.shape, leaf.dtype), shapes)
    step: Any = make((), np.int32)
    new = TrainState(step, shapes, None)
    start = starting.read(str(workdir), new)
    found = start.put(zeros(new)).params
    chex.assert_trees_all_equal(found["folnet"], params["folnet"])
    named = {line.split(":")[0] for line in start.misfits}
    heads = {name for name in parameters.flatten(shapes) if not name.startswith(parameters.ENCODER)}
    assert {f"params/{name.replace('.', '/')}" for name in heads} <= named
    both = finetuning.Config(checkpoint=str(tmp_path), init_from=str(workdir))
    with pytest.raises(ValueError, match=r"init_from: got .*, expected '' with checkpoint="):
        both.validate()


def test_kinship(tmp_path):
    config = small_kinship()
    abstract = kinship.abstract_state(config)
    params = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), abstract.params)
    config.make(config.model).save_pretrained(tmp_path, params)
    start = starting.read(str(tmp_path), abstract)
    assert start.misfits == ()
    chex.assert_trees_all_equal(start.put(zeros(abstract)).params, params)


def test_baselines_start_from_random_parameters(mathematics_run, folnet_run):
    """The model's weights are not theirs."""
    given: dict[str, Any] = {"init_from": "runs/a", "init_optimizer": True}
    one = dataclasses.replace(mathematics_run[0], **given)
    two = dataclasses.replace(folnet_run[0], **given)
    three = small_kinship(baselines=("j.at",), **given)
    four = dataclasses.replace(llrnn("quick"), **given)
    for model, baseline in (
        (one, one.for_baseline()),
        (two, two.for_baseline()),
        (three.for_model(three.model), three.for_model("j.at")),
        (four, four.for_baseline(1.0)),
    ):
        assert (model.init_from, model.init_optimizer) == ("runs/a", True)
        assert (baseline.init_from, baseline.init_optimizer) == ("", False)


def test_what_is_no_model_is_reported_before_anything_is_compiled(tmp_path):
    (tmp_path / "empty").mkdir()
    config = small_mathematics(init_from=str(tmp_path / "empty"))
    with pytest.raises(runtime.WorkdirError, match=r"init_from: .*empty: got no weights, expected"):
        mathematics.main(config, workdir=None)
