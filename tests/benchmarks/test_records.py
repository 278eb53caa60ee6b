"""Lines of runs: replaced by run, grouped by seed, and what seeds say of a mean; the program around them."""

import dataclasses

import numpy as np
import pytest

from benchmarks import launching, learning, records
from benchmarks.learning import boxworld
from experiments.registry import EXPERIMENTS

LINES = [{"preset": "quick", "agent": "simplicial", "seed": seed, "value": seed} for seed in (1, 0)]


def test_every_module_is_of_an_experiment():
    for name, room in launching.chosen(learning, []).items():
        assert room.experiment is EXPERIMENTS[name]
        for preset in room.presets:
            for config in room.configs(preset, room.variants, 1).values():
                config.validate()


def test_an_unknown_experiment_is_refused():
    with pytest.raises(
        launching.app.UsageError, match="got 'boxwurld', expected some of 'boxworld', "
    ):
        launching.chosen(learning, ["boxwurld"])


def test_lines_of_the_same_run_are_replaced():
    new = [LINES[0] | {"value": 5}, LINES[0] | {"agent": "relational"}]
    assert boxworld.ROOM.merged(LINES, new) == [LINES[1], *new]


def test_a_record_is_read_as_it_was_written(tmp_path):
    assert records.read(tmp_path) == []
    records.write(tmp_path / "new", LINES)
    assert records.read(tmp_path / "new") == LINES
    assert [path.name for path in (tmp_path / "new").iterdir()] == [records.RECORD]


def test_runs_are_made_seed_by_seed():
    configs = boxworld.ROOM.configs("quick", boxworld.AGENTS, 2)
    assert list(configs) == [
        "quick-simplicial-0", "quick-relational-0", "quick-simplicial-1", "quick-relational-1",
    ]  # fmt: skip
    assert [config.agent.kind for config in configs.values()] == [*boxworld.AGENTS] * 2
    assert [config.seed for config in configs.values()] == [0, 0, 1, 1]


def test_seeds_are_in_order():
    assert [line["seed"] for line in records.grouped(LINES, "agent")["simplicial"]] == [0, 1]


def test_band_is_the_interval_of_the_mean_within_bounds():
    mean, low, high = records.band([[0.0, 0.5], [1.0, 0.5]])
    np.testing.assert_array_equal(mean, [0.5, 0.5])
    np.testing.assert_array_equal(low, [0.0, 0.5])
    np.testing.assert_array_equal(high, [1.0, 0.5])


def test_a_spread_has_an_interval_unless_there_is_one_seed():
    assert records.spread([0.25], 3) == "0.250"
    assert records.spread([0.5, 0.5], 2) == "0.50 (0.50 to 0.50)"
    assert records.spread([0.0, 1.0], 1) == "0.5 (-5.9 to 6.9)"
    assert records.spread([0.0, 1.0], 1, shares=True) == "0.5 (0.0 to 1.0)"


@pytest.fixture
def program(monkeypatch):
    """The program, called with values of its flags in the place of a command line."""
    from benchmarks.learning import __main__ as main

    defaults = {"only": [], "presets": [], "variants": [], "seeds": 0, "data": None, "seconds": 0.0}
    defaults |= {"workdir": "runs", "out": "results", "draw_only": False}

    def call(**given):
        values = dataclasses.make_dataclass("Values", defaults)(**(defaults | given))
        monkeypatch.setattr(main.flags, "FLAGS", values)
        main.main()

    return call


def test_what_is_of_one_experiment_needs_its_name(program, tmp_path):
    with pytest.raises(launching.app.UsageError, match="name it by --only"):
        program(presets=["quick"])
    with pytest.raises(launching.app.UsageError, match="the runs of llrnn are not cut short"):
        program(only=["llrnn"], seconds=5.0)
    with pytest.raises(launching.app.UsageError, match=r"has no learning\.jsonl to draw from"):
        program(only=["kinship"], draw_only=True, out=str(tmp_path))
    with pytest.raises(launching.app.UsageError, match="nobody"):
        program(only=["kinship"], variants=["nobody"], workdir=str(tmp_path), out=str(tmp_path / "results"))


def test_a_record_is_drawn_without_training(program, tmp_path, capsys):
    file = records.Path(__file__).parents[2] / "results" / "boxworld" / records.RECORD
    (tmp_path / "boxworld").mkdir()
    (tmp_path / "boxworld" / records.RECORD).write_bytes(file.read_bytes())
    program(draw_only=True, out=str(tmp_path))
    assert (tmp_path / "boxworld" / records.TABLE).read_text() in capsys.readouterr().out
    assert not (tmp_path / "kinship").exists()
