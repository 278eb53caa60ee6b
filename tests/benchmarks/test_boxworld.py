"""The speed benchmark of BoxWorld plays what it says, and tells when its pool is too small."""

import json
import types

import pytest

from benchmarks import boxworld as benchmark
from simplicial import boxworld

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.slow
def test_a_record_of_everything(tmp_path, capsys, monkeypatch):
    """Four variants, printed and written."""
    monkeypatch.setattr(benchmark, "CONFIGS", {"bridge": boxworld.BRIDGE})
    out = tmp_path / "new" / "speed.json"
    given = types.SimpleNamespace(out=str(out), batch=8, steps=10, blocks=1, block_seconds=0.01)
    monkeypatch.setattr(benchmark.flags, "FLAGS", given)
    benchmark.main()
    rows = json.loads(out.read_text())["rows"]
    assert rows[0]["environment"] == "bridge"
    assert len(rows[0]["rates"]) == 4
    assert all(rate["steps_per_second"]["least"] > 0 for rate in rows[0]["rates"].values())
    assert all(rate["core_ns"] > 0 for rate in rows[0]["rates"].values())
    assert capsys.readouterr().out.count("steps/s") == 4


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
