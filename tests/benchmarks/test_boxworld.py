"""The speed benchmark of BoxWorld plays what it says, and tells when its pool is too small."""

import json

import pytest

from benchmarks import boxworld as benchmark
from simplicial import boxworld


def test_a_record_of_everything(tmp_path, capsys):
    """Both environments, four variants each, told and written."""
    out = tmp_path / "new" / "speed.json"
    rows = benchmark.measure_all(str(out), batch=8, steps=10, blocks=1, block_seconds=0.01)
    assert json.loads(out.read_text())["rows"] == rows
    assert [row["environment"] for row in rows] == ["bridge", "standard"]
    for row in rows:
        assert len(row["rates"]) == 4
        assert all(rate["steps_per_second"]["least"] > 0 for rate in row["rates"].values())
        assert all(rate["core_ns"] > 0 for rate in row["rates"].values())
    assert capsys.readouterr().out.count("steps/s") == 8


def test_a_pool_that_runs_out_is_an_error():
    """Boards given twice would be a cheaper program than the one that is measured."""
    short = boxworld.BRIDGE.replace(horizon=2)
    with pytest.raises(RuntimeError, match="the pool ran out"):
        benchmark.endless(short, 8, 10, pictures=False)()


def test_pictures_are_read():
    """The sums of two runs differ, and differ from the sum without pictures."""
    seeing = benchmark.endless(boxworld.BRIDGE, 8, 10, pictures=True)
    blind = benchmark.endless(boxworld.BRIDGE, 8, 10, pictures=False)
    first, second = int(seeing()), int(seeing())
    assert first != second
    assert first > 8 * 10 * 10_000 > int(blind())
