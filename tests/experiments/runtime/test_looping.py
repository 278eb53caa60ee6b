"""The loop with an engine that is not gradient descent: its calls, metrics, checkpoints, and end."""

import signal
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from experiments import runtime
from experiments.runtime import looping, metrics


@struct.dataclass
class Counter:
    """A state: the number of steps, and the sum of their indices."""

    params: Any


class Counting:
    """An engine that counts. The placed state is a plain tuple, so that a missing conversion is noticed."""

    parallel = "jit"
    compile_seconds = 1.5

    def __init__(self, *, pause=0.0, bad_at=None):
        self.pause, self.bad_at, self.calls, self.closed = pause, bad_at, [], False

    def abstract_state(self):
        sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        return Counter({"n": jax.ShapeDtypeStruct((), jnp.int32, sharding=sharding)})

    def initial(self):
        return Counter({"n": jnp.int32(0)})

    def place(self, state):
        return ("placed", int(state.params["n"]))

    def unplace(self, state):
        assert state[0] == "placed"
        return Counter({"n": jnp.int32(state[1])})

    def params_of(self, state):
        return self.unplace(state).params

    def prepare(self, state, step, length):
        return 0.0

    def advance(self, state, step, length):
        assert state == ("placed", step)
        self.calls.append((step, length))
        time.sleep(self.pause)
        return ("placed", step + length), list(range(step, step + length))

    def first_bad(self, trace):
        return (trace.index(self.bad_at), "too large") if self.bad_at in trace else None

    def metrics(self, trace, step):
        return {"loss": float(sum(trace)), "seen": step}

    def close(self):
        self.closed = True


def config(**changes):
    fields: dict[str, Any] = {"steps": 10, "log_every": 4, "checkpoint_every": 4, **changes}
    return runtime.RunConfig(**fields)


def test_an_engine_is_advanced_between_lines_of_the_record(tmp_path):
    engine = Counting()
    result = runtime.loop(
        config(eval_every=8), engine, workdir=tmp_path / "run", quiet=True,
        evaluate=lambda params: {"n": params["n"]}, conclude=lambda params: {"end": int(params["n"])},
    )  # fmt: skip
    assert engine.calls == [(0, 4), (4, 4), (8, 2)]
    assert engine.closed
    lines = metrics.read(tmp_path / "run" / "metrics.jsonl")
    assert [(line["step"], line["loss"], line["seen"]) for line in lines] == [
        (4, 6, 4),
        (8, 22, 8),
        (10, 17, 10),
    ]
    assert [line.get("eval/n") for line in lines] == [None, 8, 10]
    assert result.results == {"end": 10}
    assert result.summary["compile_seconds"] == 1.5
    assert result.summary["params_sha256"] == runtime.params_sha256({"n": np.int32(10)})


def test_a_run_resumes_where_it_was(tmp_path):
    runtime.loop(config(steps=4), Counting(), workdir=tmp_path / "run", quiet=True)
    engine = Counting()
    runtime.loop(config(), engine, workdir=tmp_path / "run", quiet=True)
    assert engine.calls == [(4, 4), (8, 2)]
    engine = Counting()
    runtime.loop(config(steps=16), engine, workdir=tmp_path / "run", quiet=True)
    assert engine.calls == [(10, 2), (12, 4)]  # up to the next multiple of the interval


def test_a_session_ends_by_the_clock_with_everything_saved_and_the_next_continues(tmp_path):
    limited = config(steps=1000, session_seconds=0.3)
    first = Counting(pause=0.1)
    result = runtime.loop(limited, first, workdir=tmp_path / "run", quiet=True)
    assert 4 <= result.step < 1000
    second = Counting(pause=0.1)
    runtime.loop(limited, second, workdir=tmp_path / "run", quiet=True)
    assert second.calls[0][0] == result.step


def test_a_session_that_is_over_before_it_begins_gets_on_by_one_interval(tmp_path):
    limited = config(session_seconds=1e-6)
    for step in (4, 8, 10):
        assert runtime.loop(limited, Counting(), workdir=tmp_path / "run", quiet=True).step == step


def test_what_is_evaluated_does_not_depend_on_sessions(tmp_path):
    """The end of a session adds no point to the curve."""
    for name, seconds, sessions in (("at once", 0.0, 1), ("in parts", 1e-6, 3)):
        limited = config(eval_every=8, session_seconds=seconds)
        for _ in range(sessions):
            runtime.loop(
                limited,
                Counting(),
                evaluate=lambda params: {"n": params["n"]},
                workdir=tmp_path / name,
                quiet=True,
            )
    at_once, in_parts = (
        [(line["step"], line.get("eval/n")) for line in metrics.read(tmp_path / name / "metrics.jsonl")]
        for name in ("at once", "in parts")
    )
    assert at_once == in_parts == [(4, None), (8, 8), (10, 10)]


def test_several_processes_must_have_the_same_config_the_same_checkpoints_and_a_workdir(
    tmp_path, monkeypatch
):
    compared = []
    monkeypatch.setattr(looping.processes, "check_alike", lambda lines, error: compared.extend(lines))
    runtime.loop(config(steps=4), Counting(), workdir=tmp_path / "run", quiet=True)
    runtime.loop(config(steps=8), Counting(), workdir=tmp_path / "run", quiet=True)
    assert [line for line in compared if line.startswith("steps=")] == ["steps=4", "steps=8"]
    folder = tmp_path / "run" / "checkpoints"
    assert [line for line in compared if "checkpoints " in line] == [
        f"checkpoints [] in {folder}", f"checkpoints [4] in {folder}",
    ]  # fmt: skip
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match="workdir: got None, expected a directory shared by the 2 processes"):
        runtime.loop(config(), Counting(), workdir=None, quiet=True)


class Shown:
    """Records what a run shows of its progress."""

    def __init__(self):
        self.opened, self.notes, self.updates = [], [], []

    def __call__(self, *arguments, **named):
        self.opened.append((*arguments, named))
        return self

    def note(self, text):
        self.notes.append(text)

    def update(self, step, found, seconds):
        self.updates.append((step, found["loss"], seconds))

    def close(self):
        self.notes.append("closed")


class Clocked(Counting):
    """Compiles in one second, advances in two."""

    def __init__(self, clock):
        super().__init__()
        self.clock, self.compile_seconds = clock, 0.0

    def prepare(self, state, step, length):
        self.compile_seconds += 1
        self.clock[0] += 1
        return 1.0

    def advance(self, state, step, length):
        self.clock[0] += 2
        return super().advance(state, step, length)


def test_seconds_are_counted_over_sessions_and_shown_of_this_one(tmp_path, monkeypatch):
    """Training is what `advance` takes; the wall clock also counts compiling and evaluating."""
    clock, shown = [0.0], Shown()
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr(looping, "Progress", shown)

    def evaluate(params):
        assert not (tmp_path / "run" / "summary.json").exists()  # that of the first session is outdated
        clock[0] += 5
        return {}

    def session(steps):
        limited = config(steps=steps, max_seconds=100.0, session_seconds=99.0)
        return runtime.loop(limited, Clocked(clock), workdir=tmp_path / "run", evaluate=evaluate)

    first, second = session(4), session(12)
    assert (first.train_seconds, first.summary["wall_seconds"]) == (2.0, 8.0)
    # The checkpoint was written before the first session's summary, and after three seconds.
    assert (second.train_seconds, second.summary["wall_seconds"]) == (6.0, 3.0 + 2 * 3 + 5)
    assert (second.summary["train_seconds"], second.summary["compile_seconds"]) == (6.0, 2.0)
    records = metrics.read(tmp_path / "run" / "metrics.jsonl")
    assert [record["train_seconds"] for record in records] == [2.0, 4.0, 6.0]
    assert shown.opened == [
        ("run", 0, 4, {"max_seconds": 99.0, "quiet": False}),
        ("run", 4, 12, {"max_seconds": 98.0, "quiet": False}),  # of a hundred, two are spent
    ]
    assert shown.updates == [(4, 6.0, 2.0), (8, 22.0, 2.0), (12, 38.0, 4.0)]
    compiled = "compiled in 1.0 s"
    assert shown.notes == [compiled, "closed", "continuing from step 4", compiled, compiled, "closed"]


@pytest.mark.parametrize(("seconds", "step"), [(3.0, 4), (3.5, 8)])
def test_a_session_ends_with_the_interval_in_which_its_time_is_up(seconds, step, monkeypatch):
    """Each takes three seconds."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    of = config(session_seconds=seconds)
    assert runtime.loop(of, Clocked(clock), workdir=None, quiet=True).step == step


def test_files_are_complete_in_the_order_in_which_they_are_relied_on(tmp_path, monkeypatch):
    """Metrics before the checkpoint of their step, and the last checkpoint before the summary."""
    events = []

    def noting(kind, name):
        method = getattr(kind, name)

        def noted(self, *arguments, **named):
            if arguments != (None,):  # a summary that is removed
                events.append(name)
            return method(self, *arguments, **named)

        monkeypatch.setattr(kind, name, noted)

    noting(looping.MetricsWriter, "sync")
    noting(looping.Checkpoints, "save")
    noting(looping.Checkpoints, "latest_path")
    noting(looping.Workdir, "write_summary")
    runtime.loop(config(steps=8), Counting(), workdir=tmp_path / "run", quiet=True)
    assert events == ["sync", "save", "sync", "save", "latest_path", "write_summary"]


def test_a_bad_step_ends_the_run_with_its_number(tmp_path):
    engine = Counting(bad_at=6)
    with pytest.raises(runtime.NonFiniteLoss, match=r"too large at step 7; the last good checkpoint is .*/4"):
        runtime.loop(config(), engine, workdir=tmp_path / "run", quiet=True)
    assert engine.closed


class Signalled(Counting):
    """Gets a SIGTERM in its first interval."""

    def advance(self, state, step, length):
        if not self.calls:
            signal.raise_signal(signal.SIGTERM)
        return super().advance(state, step, length)


def test_a_sigterm_in_an_interval_that_diverges_stops_the_next_run(tmp_path):
    """Programs go on after a run that diverged. A SIGTERM that has stopped a run stops no other."""
    with pytest.raises(runtime.NonFiniteLoss):
        runtime.loop(config(), Signalled(bad_at=1), workdir=None, quiet=True)
    with pytest.raises(runtime.Preempted, match="at step 4 of 10"):
        runtime.loop(config(), Counting(), workdir=tmp_path / "run", quiet=True)
    assert runtime.loop(config(), Counting(), workdir=tmp_path / "run", quiet=True).step == 10


def test_a_bad_config_is_refused_before_anything_is_written_and_the_engine_is_closed(tmp_path):
    engine = Counting()
    with pytest.raises(ValueError, match="checkpoint_every: got 5, expected a multiple of log_every=4"):
        runtime.loop(config(checkpoint_every=5), engine, workdir=tmp_path / "run")
    assert engine.closed
    assert not (tmp_path / "run").exists()


def test_a_run_ends_when_it_is_told_to_and_is_over_then(tmp_path):
    """It is asked after each evaluation; a run that has ended stays at its step."""
    asked: list[int] = []

    def stop(step):
        asked.append(step)
        return step >= 6

    options: dict[str, Any] = {"evaluate": lambda params: {"n": params["n"]}, "stop": stop, "quiet": True}
    of = config(steps=20, log_every=2, eval_every=4)
    result = runtime.loop(of, Counting(), workdir=tmp_path / "run", **options)
    assert (result.step, asked) == (8, [4, 8])
    assert result.summary["stopped"] is True
    again = Counting()
    known = runtime.loop(of, again, workdir=tmp_path / "run", **options)
    assert (known.step, again.calls, asked) == (8, [], [4, 8, 8])
    (tmp_path / "run" / "summary.json").unlink()  # killed before it was written
    assert runtime.loop(of, Counting(), workdir=tmp_path / "run", **options).summary["stopped"] is True
    options["stop"] = None
    more = runtime.loop(of, Counting(), workdir=tmp_path / "run", **options)
    assert (more.step, "stopped" in more.summary) == (20, False)


def test_a_long_session_is_not_over():
    """Its seconds are counted from its start."""
    assert runtime.loop(config(session_seconds=100.0), Counting(), workdir=None, quiet=True).step == 10
