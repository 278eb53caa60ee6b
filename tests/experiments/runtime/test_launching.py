"""Programs without a config: what they report is one line."""

import pytest
from absl import app

from experiments.runtime import launching


def ended(monkeypatch, main, *arguments, reports=()):
    """Starts a program as absl would; returns its exit status."""
    monkeypatch.setattr(app, "run", lambda run: run(["program", *arguments]))
    with pytest.raises(SystemExit) as ends:
        launching.run_program(main, reports=reports)
    return ends.value.code


def wrong(error):
    def main():
        raise error

    return main


@pytest.mark.parametrize(
    "error", [ValueError("run: got x, expected y"), app.UsageError("run: got x, expected y")]
)
def test_what_a_program_refuses_is_one_line(monkeypatch, capsys, error):
    assert ended(monkeypatch, wrong(error), reports=(ValueError,)) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "error: run: got x, expected y\n")


def test_other_errors_have_their_traceback(monkeypatch):
    monkeypatch.setattr(app, "run", lambda run: run(["program"]))
    with pytest.raises(KeyError):
        launching.run_program(wrong(KeyError("x")), reports=(ValueError,))


def test_a_program_takes_flags_only(monkeypatch, capsys):
    assert ended(monkeypatch, lambda: pytest.fail("it ran"), "word") == 2
    assert capsys.readouterr().err == "error: arguments: got 'word', expected flags only\n"
