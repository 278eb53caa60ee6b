"""How often functions are called, what is counted, and that blocks alternate, by a clock moved by hand."""

import time

import jax
import pytest

from kernels.timing import alternate


@pytest.fixture
def clock(monkeypatch):
    """The time, which a call moves by what it costs, and what was called and waited for."""
    state = {"now": 0.0, "calls": []}
    monkeypatch.setattr(time, "perf_counter", lambda: state["now"])
    monkeypatch.setattr(jax, "block_until_ready", lambda x: state["calls"].append("wait"))
    return state


def calling(clock, name, seconds):
    def call():
        clock["calls"].append(name)
        clock["now"] += seconds.pop(0) if len(seconds) > 1 else seconds[0]

    return call


def test_blocks_alternate_and_take_the_time_asked_for(clock, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    functions = {"a": calling(clock, "a", [1.0]), "b": calling(clock, "b", [9.0, 2.0])}
    times = alternate(functions, blocks=3, block_seconds=4.0)
    assert times == {"a": [1.0] * 3, "b": [2.0] * 3}
    calls = [name for name in clock["calls"] if name != "wait"]
    assert calls == ["a", "a", "b", "b", *(["a"] * 4 + ["b"] * 2) * 3]
    # Each call is waited for, since they would compete for the cores; and a block once more.
    assert clock["calls"][-5:] == ["b", "wait", "b", "wait", "wait"]


def test_an_accelerator_is_waited_for_once_a_block(clock, monkeypatch):
    """The first call alone would suggest 2 calls; of 2 queued ones, each takes a quarter of that."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    times = alternate({"a": calling(clock, "a", [8.0, 4.0, 1.0])}, blocks=2, block_seconds=8.0, uncounted=3)
    assert times == {"a": [1.0] * 2}
    once = ["a"] * 8 + ["wait"]
    calls = ["a", "wait", "a", "wait", "a", "a", "wait", *(["a", "wait"] * 3 + once) * 2]
    assert clock["calls"] == calls
