"""The program that measures parts of batches: its lines are those that runs look up."""

import dataclasses
import json
from typing import Any

import pytest
from absl import app

from benchmarks import chunks as program
from experiments import registry
from experiments.llrnn import parts, train
from experiments.runtime import chunks

pytestmark = pytest.mark.usefixtures("compiled_quickly")


LLRNN = registry.EXPERIMENTS["llrnn"]


def small(features: int = 4) -> Any:
    """The experiment whose steps compile soonest, with a small model."""
    config: Any = LLRNN.presets("quick")
    cell = parts.CellConfig.of("elman", features=features)
    return dataclasses.replace(
        config,
        task="parity",
        task_options=parts.TaskOptions(),
        batch_size=4,
        cell=cell,
        baseline=parts.CellConfig(),
    )


def test_a_run_finds_the_line_that_was_measured(tmp_path, monkeypatch):
    """With the parts of the fastest cut; parts that do not divide the batch are left out.

    Only the first cut's steps are made.
    """
    monkeypatch.setattr(chunks, "TABLE", tmp_path / "chunks.json")
    alternated, stepping = [], program.stepping

    def first(engine):
        monkeypatch.setattr(program, "stepping", lambda engine: lambda: None)
        return stepping(engine)

    monkeypatch.setattr(program, "stepping", first)

    def alternate(steps, *, blocks, block_seconds):
        alternated.extend(steps)
        for step in steps.values():
            step()
        return {name: [3.0 / int(name)] * blocks for name in steps}

    monkeypatch.setattr(program.timing, "alternate", alternate)
    line = program.measure(LLRNN, small(), [1, 2, 3], blocks=2, seconds=0)
    assert alternated == ["1", "2"]
    assert (line["rows"], line["batch_size"], line["gain"]["median"]) == (2, 4, 2.0)
    added = chunks.completed({}, small())
    older = {name: value for name, value in line["sizes"].items() if name not in added}
    assert added
    others = [{**line, "rows": 4}, {**line, "rows": 4, "sizes": older}, {**line, "parameters": 1}]
    program.write(chunks.TABLE, program.replaced(others, line, small()))
    assert len(json.loads(chunks.TABLE.read_text())) == 2
    assert program.build(LLRNN, small(), 2).config == small()  # which asks for a number of parts
    init = train.make_training(small()).init
    assert chunks.chosen(small(), init) == 2
    assert chunks.chosen(small(features=5), init) == 1


@pytest.mark.parametrize(
    ("in_two", "rows", "gain"),
    [
        ([0.97, 0.98, 0.97], 4, 1.0),  # always faster, but by less than 5 %
        ([0.5, 2.0, 0.5], 2, 2.0),  # one block that was disturbed
    ],
)
def test_a_cut_is_chosen_for_its_median_gain(monkeypatch, in_two, rows, gain):
    times = {"1": [1.0] * 3, "2": in_two}
    monkeypatch.setattr(program.timing, "alternate", lambda steps, **_: {name: times[name] for name in steps})
    monkeypatch.setattr(program, "stepping", lambda engine: None)
    line = program.measure(LLRNN, small(), [2], blocks=3, seconds=0)
    assert (line["rows"], line["gain"]["median"]) == (rows, gain)


def test_cases_are_of_existing_presets_and_fields():
    """Presets without a changed field are checked by the tests of their rooms."""
    for experiment, preset, fields in program.CASES.values():
        config = program.changed(registry.EXPERIMENTS[experiment].presets(preset), fields)
        if fields:
            config.validate()
    assert list(program.chosen_cases(["kinship", "llrnn"], "")) == ["kinship.quick", "llrnn.quick"]
    assert program.chosen_cases([], "llrnn:copy") == {"llrnn:copy": ("llrnn", "copy", {})}
    for only, config, message in (
        (["lrnnn"], "", "--only: got 'lrnnn', expected a part of one of boxworld.relational"),
        ([], "lrnnn:quick", "--config: got 'lrnnn:quick', expected NAME:PRESET"),
        ([], "llrnn:fast", "--config: config: got 'fast', expected one of"),
    ):
        with pytest.raises(app.UsageError, match=message):
            program.chosen_cases(only, config)
