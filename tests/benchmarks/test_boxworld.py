"""The speed benchmark of BoxWorld plays what it says, and tells when its pool is too small."""

import json
import types

import pytest

from benchmarks import boxworld as benchmark
from simplicial import boxworld

pytestmark = pytest.mark.usefixtures("compiled_quickly")


SHORT = boxworld.BRIDGE.replace(horizon=21)
"""All episodes end with the first of the third ten steps, and a run has half as many boards."""


@pytest.mark.slow
def test_a_record_of_everything(tmp_path, capsys, monkeypatch):
    """Six variants, printed and written; pictures are not read where none are said to be."""
    monkeypatch.setattr(benchmark, "CONFIGS", {"bridge": boxworld.BRIDGE})
    out = tmp_path / "new" / "speed.json"
    given = types.SimpleNamespace(out=str(out), batch=8, steps=10, blocks=1, block_seconds=0.01)
    monkeypatch.setattr(benchmark.flags, "FLAGS", given)
    benchmark.main()
    rows = json.loads(out.read_text())["rows"]
    assert rows[0]["environment"] == "bridge"
    rates = rows[0]["rates"]
    units = ["states" if "sol" in name or "search" in name else "steps" for name in rates]
    assert units == ["steps"] * 4 + ["states"] * 2
    assert all(
        rates[name][f"{unit}_per_second"]["least"] > 0 for name, unit in zip(rates, units, strict=True)
    )
    assert rows[0]["solver_times_faster"]["least"] > 0
    assert all(rate["core_ns"] > 0 for rate in rows[0]["rates"].values())
    printed = capsys.readouterr().out
    assert (printed.count("steps/s"), printed.count("states/s")) == (4, 2)
    check_sums_and_pool(pictures=False)


def test_both_solvers_solve_the_same_states():
    """The ratio would mean nothing otherwise; not all states are solved, and distances differ."""
    together, one_by_one, count = benchmark.solving(boxworld.BRIDGE.replace(max_length=1), 20)
    found = one_by_one()
    assert count == 20
    assert together().tolist() == found.tolist()
    assert found.min() == -1 < 5 < found.max()


def test_pictures_are_read_and_a_pool_that_runs_out_is_an_error():
    check_sums_and_pool(pictures=True)


def check_sums_and_pool(*, pictures):
    """The sums of two runs differ, and with pictures each is greater than rewards can be.

    Boards given twice would be a cheaper program than the one that is measured.
    """
    run = benchmark.endless(SHORT, 8, 10, pictures=pictures)
    first, second = int(run().sum()), int(run().sum())
    assert (first > 8 * 10 * 10_000) == pictures
    assert (first != second) == pictures
    with pytest.raises(RuntimeError, match="pool: too small"):
        run()
