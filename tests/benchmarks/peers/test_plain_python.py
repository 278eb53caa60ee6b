"""BoxWorld in plain Python against ours: equal episodes and a ratio of times."""

import pytest

from benchmarks.peers import plain_boxworld, plain_python


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bridge", "standard"])
def test_a_row(name):
    row = plain_python.measure(name, 8, 4, blocks=2, block_seconds=0.01)
    peer = row["peers"]["plain Python"]
    assert peer["difference"] == 0
    assert peer["times_as_long"]["median"] > 0
    assert len(row["ours"]["blocks"]) == 2


@pytest.mark.slow
def test_another_world_is_not_timed(monkeypatch):
    step = plain_boxworld.PlainBoxWorld.step
    monkeypatch.setattr(plain_boxworld.PlainBoxWorld, "step", lambda self, action: step(self, action ^ 1))
    peer = plain_python.measure("bridge", 8, 4, blocks=1, block_seconds=0.01)["peers"]["plain Python"]
    assert "differs" in peer
    assert "seconds" not in peer
