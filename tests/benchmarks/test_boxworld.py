"""The speed benchmark of BoxWorld plays what it says, and tells when its pool is too small."""

import json
import types

import pytest

from benchmarks import boxworld as benchmark
from simplicial import boxworld

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.slow
def test_a_record_of_everything(tmp_path, capsys, monkeypatch):
    """Six variants, printed and written."""
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


def test_both_solvers_solve_the_same_states():
    """The ratio would mean nothing otherwise; not all states are solved, and distances differ."""
    together, one_by_one, count = benchmark.solving(boxworld.BRIDGE.replace(max_length=1), 40)
    found = one_by_one()
    assert count == 40
    assert together().tolist() == found.tolist()
    assert found.min() == -1 < 5 < found.max()


def test_a_pool_that_runs_out_is_an_error():
    """Boards given twice would be a cheaper program than the one that is measured."""
    short = boxworld.BRIDGE.replace(horizon=2)
    with pytest.raises(RuntimeError, match="pool: too small"):
        benchmark.endless(short, 8, 10, pictures=False)()


def test_pictures_are_read():
    """The sums of two runs differ, and differ from the sum without pictures."""
    seeing = benchmark.endless(boxworld.BRIDGE, 8, 10, pictures=True)
    blind = benchmark.endless(boxworld.BRIDGE, 8, 10, pictures=False)
    first, second = int(seeing().sum()), int(seeing().sum())
    assert first != second
    assert first > 8 * 10 * 10_000 > int(blind().sum())
