"""Progress messages, on a terminal and elsewhere."""

import io
import sys

import jax
import pytest

from experiments.runtime import progress
from experiments.runtime.progress import Progress


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self):
        return True


def run(every=0.0, **others):
    shown = Progress("copy", 100, 300, every=every, **others)
    shown.note("continues from step 100")
    shown.update(200, {"loss": 0.12345, "nothing": None}, 0.5)
    shown.update(300, {"loss": 0.01}, 1.0)
    shown.close()


def test_lines_where_there_is_no_terminal(capsys):
    run()
    assert capsys.readouterr().err.splitlines() == [
        "copy: continues from step 100",
        "copy: step 200/300, loss 0.1235, 200 steps/s, 0 s left",
        "copy: step 300/300, loss 0.01, 200 steps/s, 0 s left",
    ]


def test_a_run_the_clock_will_stop_first(capsys):
    run(max_seconds=0.75)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "copy: step 200, loss 0.1235, 200 steps/s, 0 s left",
        "copy: step 300/300, loss 0.01, 200 steps/s, 0 s left",
    ]


def test_a_line_shows_the_first_few_metrics(capsys):
    shown = Progress("copy", 0, 10, every=0.0)
    shown.update(10, {"step": 10, "grad_norm": 3.0, **{f"m{i}": float(i) for i in range(9)}}, 1.0)
    assert "m0 0, m1 1, m2 2, m3 3, m4 4, 10 steps/s" in capsys.readouterr().err


def test_a_clock_that_has_not_moved_and_no_step_are_no_error(capsys):
    shown = Progress("copy", 10, 20, every=0.0)
    shown.update(10, {"loss": 1.0}, 0.0)
    shown.update(12, {"loss": 1.0}, 0.0)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("copy: step 10/20, loss 1, 0 steps/s")
    assert second.startswith("copy: step 12/20, loss 1, ")


def test_few_lines_but_always_the_last(capsys):
    run(every=1000.0)
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "copy: continues from step 100",
        "copy: step 300/300",
    ]


def test_a_line_is_as_long_after_the_last_as_was_asked(monkeypatch, capsys):
    times = iter([100.0, 104.5, 105.0, 109.5, 110.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    shown = Progress("copy", 0, 100, every=5.0)
    for step in (1, 2, 3, 4):
        shown.update(step, {"loss": 1.0}, 1.0)
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "copy: step 2/100",
        "copy: step 4/100",
    ]


def test_a_bar_on_a_terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    run()
    text = terminal.getvalue()
    assert "copy: continues from step 100" in text
    assert "300/300" in text
    assert "loss 0.01" in text


def test_only_the_first_process_shows_anything(monkeypatch, capsys):
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    run()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("terminal", [False, True])
def test_nothing_when_quiet(monkeypatch, terminal):
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    run(quiet=True)
    assert stream.getvalue() == ""
