"""Programs without a config: what they report is one line; and what is said of wrong flags of a config."""

import dataclasses

import pytest
import regression  # pyrefly: ignore[missing-import]
from absl import app, flags
from ml_collections import config_flags

from experiments.runtime import launching


@pytest.fixture(autouse=True)
def done(monkeypatch):
    """Returns what programs do, without keeping blocks in this process."""
    found = []
    monkeypatch.setattr(launching.memory, "keep_large_blocks", lambda: found.append("kept"))
    return found


def ended(monkeypatch, main, *arguments, takes=(), reports=()):
    """Starts a program as absl would; returns its exit status."""
    monkeypatch.setattr(app, "run", lambda run: run(["program", *arguments]))
    with pytest.raises(SystemExit) as ends:
        launching.run_program(main, takes=takes, reports=reports)
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


def test_a_program_keeps_blocks_before_it_computes(monkeypatch, done):
    monkeypatch.setattr(app, "run", lambda run: run(["program"]))
    launching.run_program(lambda: done.append("ran"))
    assert done == ["kept", "ran"]


def test_a_program_takes_flags_only(monkeypatch, capsys):
    assert ended(monkeypatch, lambda: pytest.fail("it ran"), "word") == 2
    assert capsys.readouterr().err == "error: arguments: got word, expected flags only\n"


def test_a_program_is_called_with_the_arguments_that_it_takes(monkeypatch, capsys):
    takes = ("the source", "the target")
    assert ended(monkeypatch, lambda source, target: pytest.fail("it ran"), "a", takes=takes) == 2
    assert capsys.readouterr().err == "error: arguments: got a, expected the source, the target and flags\n"
    given = []
    monkeypatch.setattr(app, "run", lambda run: run(["program", "a", "b"]))
    launching.run_program(lambda source, target: given.append((source, target)), takes=takes)
    assert given == [("a", "b")]


@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")  # of ml_collections
def test_a_misspelt_field_is_named_with_the_nearest_one():
    config = launching.config_file(regression.EXPERIMENT, "quick")
    for given in (["--config.seed=1", "--config.stpes=3"], ["--noconfig.stpes"]):
        found = launching._unknown_field(given, config)
        assert found is not None
        assert found.startswith("--config.stpes: no such field (did you mean steps?), expected one of ")
        assert ", batch_size" in found
    given = [f"--config={config}", "--config.zzz=3"]
    assert (launching._unknown_field(given, "") or "").startswith(
        "--config.zzz: no such field, expected one of "
    )
    plain = launching._unknown_field(["--config.steps.most=3"], config)
    assert plain == "--config.steps.most: no such field: steps is a plain value"
    assert launching._unknown_field(["--config.steps=3", "--parallel=pmap"], config) is None


@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")  # of ml_collections
@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--config.stpes=3", "--config.stpes: no such field (did you mean steps?), ex"),
        ("--config.steps=3", "'x'"),
    ],
)
def test_an_error_of_a_name_is_a_line_whatever_its_reason(capsys, flag, message):
    config = launching.config_file(regression.EXPERIMENT, "quick")
    with pytest.raises(SystemExit, match="2"), launching._reported_in_one_line([flag], config):
        raise KeyError("x")
    assert capsys.readouterr().err.startswith(f"error: {message}")


@pytest.mark.parametrize("value", ["other:quick", "quick:regression"])
def test_another_experiments_preset_is_refused(value):
    with pytest.raises(ValueError, match=f"--config: got '{value}', expected a preset, regression:PRESET or"):
        launching.config_file(regression.EXPERIMENT, value)


def test_a_presets_name_is_the_next_argument_or_the_same():
    file = launching.config_file(regression.EXPERIMENT, "quick")
    for given in (["program", "--config", "quick"], ["program", "-config", "quick", "--config.steps=3"]):
        found = launching._with_files(regression.EXPERIMENT, given)
        assert found == [*given[:2], file, *given[3:]]
    assert launching._with_files(regression.EXPERIMENT, ["program", "--config"]) == ["program", "--config"]


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ("a,b", ("a", "b")),
        ("64x14, 120x26", ("64x14", "120x26")),  # ml_collections: a syntax error
        ("a", ("a",)),
        ("1,2.5", (1, 2.5)),
        ("3", (3,)),
        ("('a','b')", ("a", "b")),
        ("'a, b'", ("a, b",)),
        ("()", ()),
        ("", ()),
    ],
)
def test_several_values_need_no_quotes(given, values):
    assert launching._SeveralParser().parse(given) == values
    assert launching._SeveralParser().parse(values) == values


def test_fields_of_several_values_are_read_so():
    """By what defines the flags of a config, too, whatever the default is."""

    @dataclasses.dataclass
    class Config:
        names: tuple[str, ...] = ()
        lengths: tuple[str, ...] = ("1x2", "3x4")

    values, argv = flags.FlagValues(), ["program", "--config.names=a,b", "--config.lengths=64x14,120x26"]
    config_flags.DEFINE_config_dataclass("config", Config(), flag_values=values, sys_argv=argv)
    values(argv)
    assert values.config == Config(("a", "b"), ("64x14", "120x26"))


def test_the_last_cause_of_an_error_is_its_line():
    """What a library adds around it is left out."""
    traceback = "Traceback:\n  KeyError: 'x'\n  TypeError: one\n\nWhile that:\n ValueError: a: got 1\nthe end"
    assert launching._one_line(traceback) == "a: got 1"
    missing = "Could not load.\nAttempted to load:\n  /there/none.py\nbut it is not there"
    assert launching._one_line(missing) == "--config: got /there/none.py, expected an existing file"
    assert launching._one_line("steps: got x") == "steps: got x"
