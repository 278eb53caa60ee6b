"""The program that measures parts of batches: its lines are those that runs look up."""

import dataclasses
import json
from typing import Any

import pytest
from absl import app

from benchmarks import chunks as program
from experiments import registry
from experiments.runtime import chunks

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def small() -> Any:
    """The reasoning experiment with a small model."""
    config: Any = registry.EXPERIMENTS["reasoning"].presets("quick")
    sizes = {"features": 8, "num_layers": 1, "num_heads": 1, "hidden": 8, "length": 8, "window2": 4}
    return dataclasses.replace(config, batch_size=4, every=0, **sizes)


def test_a_run_finds_the_line_that_was_measured(tmp_path, monkeypatch):
    """With the parts of the fastest cut; parts that do not divide the batch are left out."""
    monkeypatch.setattr(chunks, "TABLE", tmp_path / "chunks.json")
    alternated = []

    def alternate(steps, *, blocks, block_seconds):
        alternated.extend(steps)
        for step in steps.values():
            step()
        return {name: [3.0 / int(name)] * blocks for name in steps}

    monkeypatch.setattr(program.timing, "alternate", alternate)
    experiment = registry.EXPERIMENTS["reasoning"]
    line = program.measure(experiment, small(), [1, 2, 3], blocks=2, seconds=0)
    assert alternated == ["1", "2"]
    assert (line["rows"], line["batch_size"], line["gain"]["median"]) == (2, 4, 2.0)
    program.write(chunks.TABLE, program.replaced([{**line, "rows": 4}, {**line, "parameters": 1}], line))
    assert len(json.loads(chunks.TABLE.read_text())) == 2
    assert program.build(experiment, small(), 2).config == small()  # which asks for a number of parts
    from experiments.reasoning.train import problem

    assert chunks.chosen(small(), problem(small())["init"]) == 2
    assert chunks.chosen(dataclasses.replace(small(), length=16), problem(small())["init"]) == 1


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
    line = program.measure(registry.EXPERIMENTS["reasoning"], small(), [2], blocks=3, seconds=0)
    assert (line["rows"], line["gain"]["median"]) == (rows, gain)


def test_cases_are_of_existing_presets_and_fields():
    for experiment, preset, fields in program.CASES.values():
        config = program.changed(registry.EXPERIMENTS[experiment].presets(preset), fields)
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
