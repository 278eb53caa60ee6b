"""Configs of the LLRNN experiment: presets, cells, mistakes."""

import dataclasses

import pytest

from experiments.llrnn.config import AUTHORS_TASKS, CellConfig, TaskOptions, get_config
from llrnn import model as models
from llrnn import tasks
from tests.experiments.llrnn.small import short


@pytest.mark.parametrize("preset", get_config.names)
def test_presets_are_valid(preset):
    get_config(preset).validate()


@pytest.mark.parametrize("cell", ["pattern_ntm", "multiple_pattern_ntm", "polynomial_ntm"])
def test_the_authors_presets_take_their_other_models(cell):
    config = get_config("authors_pattern_4")
    dataclasses.replace(config, cell=dataclasses.replace(config.cell, name=cell)).validate()


@pytest.mark.parametrize("cell", models.CELLS)
def test_any_cell_can_take_the_place_of_a_presets(cell, caplog):
    """What the flag `--config.cell.name=CELL` does; only what the user did not choose is left out."""
    config = get_config("copy")
    config.cell.name = cell
    config.cell.features = 9
    config.validate()
    get_config("word_problem").validate()
    made = config.cell.make()
    assert made.features == 9
    assert getattr(made, "memory_size", 64) == 64
    if cell == "elman":
        assert "elman has no fields erase, memory_size, memory_width, powers, sharpen" in caplog.text


def test_every_task_of_the_authors_has_a_preset_at_its_own_lengths():
    for task in AUTHORS_TASKS:
        config = get_config(f"authors_{task}")
        assert config.make_task() == tasks.make(task)
        assert (config.batch_size, config.cell.features, config.lr) == (250, 100, 1e-4)
    assert set(AUTHORS_TASKS) < set(tasks.NAMES)


def cell(**fields):
    return {"cell": CellConfig(**fields)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "nonsense"}, r"task: got 'nonsense', expected one of 'copy', 'repeat_copy'.*'bucket_sort'"),
        ({"cell": CellConfig(name="gru")}, r"name: got 'gru', expected one of .*higher_order.*ntm"),
        ({"cell": CellConfig(name="lstm", powers=(1,))}, r"options of lstm: got 'powers'"),
        (cell(activation="gelu"), r"activation: got 'gelu', expected one of 'relu', 'tanh'"),
        ({"baseline": CellConfig(name="gru")}, r"name: got 'gru'"),
        ({"task_options": TaskOptions(group="S3")}, r"options of copy: got 'group', expected one of"),
        ({"optimizer": "adamw"}, r"optimizer: got 'adamw', expected one of 'adam', 'rmsprop', 'sgd'"),
        ({"lr": -1.0}, r"lr: got -1.0, expected at least 0"),
        ({"clip": float("nan")}, r"clip: got nan, expected at least 0"),
    ],
)
def test_a_mistake_in_a_config_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        short(**change).validate()


def test_every_cell_by_name_has_a_config():
    """A number, switch or word of a cell of ours can be set on the command line."""
    settable = {field.name for field in dataclasses.fields(CellConfig)}
    for name in models.CELLS:
        if name == "lstm":
            continue
        cell = models.make_cell(name, features=4)
        plain = {
            field
            for field in models.cell_fields(name)
            if isinstance(getattr(cell, field), bool | int | str | tuple)
        }
        assert plain - settable - EXPERTS == set(), name


EXPERTS = {"squash", "source", "polynomials"}
"""Fields that only Python sets: the draft's own equations, which were seen to fail, and nested tuples."""
