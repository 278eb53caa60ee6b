"""The program that makes sets of questions, as a user starts it."""

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from experiments.mathematics import data
from tp_transformer import mathematics

ROOT = Path(__file__).resolve().parents[3]


def run(*flags):
    return subprocess.run(
        [sys.executable, "-m", "experiments.mathematics.data", *flags],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def main(monkeypatch, **flags):
    """The program in this process."""
    defaults = {"modules": [], "train": 3, "test": 1, "seed": 0, "processes": 1, "copy": None, "quiet": True}
    monkeypatch.setattr(data.flags, "FLAGS", types.SimpleNamespace(**defaults | flags))
    data.main()


def test_a_set_is_made_and_made_again_as_it_was(tmp_path, monkeypatch):
    modules = "--modules=numbers__is_factor,numbers__place_value_big"
    flags = (modules, "--train=6", "--test=4", "--processes=1", "--quiet", f"--out={tmp_path / 'set'}")
    first = run(*flags)
    assert first.returncode == 0, first.stderr
    assert first.stderr == ""
    assert first.stdout.splitlines()[1:] == [
        "  train: 6 questions from 1 modules",
        "  interpolate: 4 questions from 1 modules",
        "  extrapolate: 4 questions from 1 modules",
    ]
    made = {path: path.read_bytes() for path in (tmp_path / "set").rglob("*.txt")}
    assert len(made) == 5  # three levels and two test splits
    again = {"out": str(tmp_path / "set"), "modules": ["numbers__is_factor", "numbers__place_value_big"]}
    main(monkeypatch, **again, train=6, test=4)
    assert {path: path.read_bytes() for path in (tmp_path / "set").rglob("*.txt")} == made
    main(monkeypatch, copy=str(tmp_path / "set"), out=str(tmp_path / "copy"))
    source, copy = (mathematics.open_source(tmp_path / name) for name in ("set", "copy"))
    for split in ("train", "interpolate", "extrapolate"):
        assert copy.modules(split) == source.modules(split)
        for name in source.modules(split):
            assert list(copy.questions(split, name)) == list(source.questions(split, name))


def test_a_name_that_does_not_exist_is_reported_with_the_nearest():
    with pytest.raises(ValueError, match=r"got 'numbers__gdc', expected a known name such as numbers__gcd"):
        data.chosen(["numbers__gdc"], train=3, test=1, seed=0)


def test_no_names_are_all_and_names_go_to_their_splits():
    every = data.chosen([], train=3, test=1, seed=0)
    assert (len(every.names), len(every.extrapolation)) == (56, 15)
    # One name is a module of both.
    both = data.chosen(["measurement__conversion", "numbers__gcd"], train=3, test=1, seed=2)
    assert both.names == ("measurement__conversion", "numbers__gcd")
    assert both.extrapolation == ("measurement__conversion",)
    assert both.seed == 2


def test_what_is_wrong_is_reported_and_nothing_is_written(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="train: got 4, expected a nonnegative multiple of 3"):
        main(monkeypatch, out=str(tmp_path / "set"), train=4)
    assert not (tmp_path / "set").exists()
