"""Workdirs: ownership, rejection before anything is written, and the hash of parameters."""

import dataclasses
import fcntl
import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import runtime
from experiments.runtime import processes
from experiments.runtime.workdir import (
    Workdir,
    commit_of,
    config_dict,
    config_difference,
    read_config,
    write_json,
)


@dataclasses.dataclass
class Model:
    width: int = 3
    sizes: tuple[int, ...] = (1, 2)
    kinds: tuple[str, ...] | None = runtime.added(None)
    parts: tuple[str, ...] = runtime.added(())


@dataclasses.dataclass
class Config(runtime.RunConfig):
    lr: float = 0.1
    model: Model = dataclasses.field(default_factory=Model)


def content(path):
    return {entry.relative_to(path): entry.is_file() and entry.read_bytes() for entry in path.rglob("*")}


def test_the_config_is_written_and_the_same_one_comes_in_again(tmp_path):
    path = tmp_path / "a" / "b"
    Workdir(path, Config()).close()
    written = json.loads((path / "config.json").read_text())
    assert written["model"] == {"width": 3, "sizes": [1, 2], "kinds": None, "parts": []}
    assert written == config_dict(Config())
    Workdir(path, Config()).close()


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ({"lr": 0.2}, ["lr: got 0.2, expected 0.1"]),
        (
            {"model": Model(width=4, sizes=(1,))},
            ["model.width: got 4, expected 3", "model.sizes: got [1], expected [1, 2]"],
        ),
        ({"steps": 900}, ["steps: got 900, expected 1000 or more"]),
        ({"log_every": 50}, ["log_every: got 50, expected 100"]),
        (
            {
                "steps": 2000,
                "max_seconds": 5.0,
                "checkpoint_every": 100,
                "keep_checkpoints": 9,
                "tensorboard": True,
            },
            [],
        ),
    ],
)
def test_another_config_is_refused_with_the_difference_unless_it_does_no_harm(tmp_path, change, lines):
    Workdir(tmp_path, Config()).close()
    before = content(tmp_path)
    config = dataclasses.replace(Config(), **change)
    if not lines:
        Workdir(tmp_path, config).close()
        assert json.loads((tmp_path / "config.json").read_text())["steps"] == config.steps
        return
    with pytest.raises(runtime.WorkdirError) as caught:
        Workdir(tmp_path, config)
    assert str(caught.value).split("\n  ")[1:] == lines
    assert content(tmp_path) == before


def test_no_more_steps_where_a_schedule_depends_on_them():
    """There the field is declared again, as one that is not free."""
    scheduled = dataclasses.make_dataclass("Scheduled", [("steps", int, 1000)], bases=(Config,))
    assert config_difference(config_dict(scheduled()), scheduled(steps=2000)) == [
        "steps: got 2000, expected 1000"
    ]


def test_the_config_of_another_experiment_is_not_read(tmp_path):
    named, other = (type(name, (Config,), {"experiment": name}) for name in ("named", "other"))
    write_json(tmp_path / "config.json", config_dict(named(lr=0.3)))
    assert read_config(named, tmp_path / "config.json").lr == 0.3
    with pytest.raises(ValueError, match=r"config\.json: got a config of 'named', expected one of 'other'"):
        read_config(other, tmp_path / "config.json")
    write_json(tmp_path / "config.json", {"lr": 0.3})  # an earlier one, without a name
    assert read_config(named, tmp_path / "config.json").lr == 0.3


def test_fields_that_came_or_went_are_differences():
    before = config_dict(Config())
    before["momentum"] = before.pop("lr")
    assert config_difference(before, Config()) == [
        "momentum: got nothing, expected 0.1",
        "lr: got 0.1, expected nothing",
    ]


def test_a_free_field_that_came_since_is_none():
    """Runs that were released before `session_seconds` existed can be continued."""
    before = config_dict(Config())
    del before["session_seconds"]
    assert config_difference(before, dataclasses.replace(Config(), session_seconds=5.0)) == []
    assert config_difference(before | {"session_seconds": 1.0, "gone": 1}, Config()) == [
        "gone: got nothing, expected 1"
    ]


def test_an_added_field_has_its_default_in_runs_that_lack_it():
    """Runs that began before `init_from` existed began from random parameters."""
    before = config_dict(Config())
    del before["init_from"], before["model"]["kinds"], before["model"]["parts"]
    assert config_difference(before, Config()) == []
    assert config_difference(before, Config(model=Model(kinds=("a",)))) == [
        'model.kinds: got ["a"], expected null'
    ]
    assert config_difference(before, Config(model=Model(parts=("a",)))) == [
        'model.parts: got ["a"], expected []'
    ]
    assert config_difference(before, dataclasses.replace(Config(), init_from="runs/a")) == [
        'init_from: got "runs/a", expected ""'
    ]


def test_parts_that_are_not_chosen_yet_are_those_of_the_run():
    begun, one = (config_dict(dataclasses.replace(Config(), accumulate=n)) for n in (2, 0))
    assert config_difference(begun, Config()) == []
    assert config_difference(begun, dataclasses.replace(Config(), accumulate=4)) == [
        "accumulate: got 4, expected 2"
    ]
    for before in (one, {name: value for name, value in one.items() if name != "accumulate"}):
        assert config_difference(before, dataclasses.replace(Config(), accumulate=1)) == []
        assert config_difference(before, dataclasses.replace(Config(), accumulate=2)) == [
            "accumulate: got 2, expected 1"
        ]


def test_a_directory_with_other_things_in_it_is_refused_untouched(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    before = content(tmp_path)
    with pytest.raises(runtime.WorkdirError, match=r"not empty \(thesis.tex\)"):
        Workdir(tmp_path, Config())
    assert content(tmp_path) == before
    with pytest.raises(runtime.WorkdirError, match="got a file, expected a directory"):
        Workdir(tmp_path / "thesis.tex", Config())
    for name in ("proof", "notes", "figures", "letter", "abstract"):
        (tmp_path / name).mkdir()
    with pytest.raises(runtime.WorkdirError, match=r"\(abstract, figures, letter, notes, proof, \.\.\.\)"):
        Workdir(tmp_path, Config())


def test_a_start_that_was_killed_at_once_is_no_obstacle(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / ".config.json.new").write_text('{"se')
    Workdir(tmp_path, Config()).close()
    assert json.loads((tmp_path / "config.json").read_text()) == config_dict(Config())


def test_a_run_that_another_process_begins_meanwhile_is_no_others_files(tmp_path, monkeypatch):
    """Process 0 writes config.json while process 1 checks the directory."""
    listed = Path.iterdir

    def begun_meanwhile(path):
        write_json(path / "config.json", config_dict(Config()))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", begun_meanwhile)
    Workdir(tmp_path, Config()).close()
    (tmp_path / "config.json").unlink()
    with pytest.raises(runtime.WorkdirError, match=r"lr: got 0\.2, expected 0\.1"):
        Workdir(tmp_path, Config(lr=0.2))


def test_a_run_that_began_and_ended_before_the_lock_keeps_its_directory(tmp_path, monkeypatch):
    """The directory is checked again under the lock."""
    other, lock = config_dict(Config(lr=0.2)), fcntl.flock

    def begun(*arguments):
        write_json(tmp_path / "config.json", other)
        return lock(*arguments)

    monkeypatch.setattr(fcntl, "flock", begun)
    with pytest.raises(runtime.WorkdirError, match=r"lr: got 0\.1, expected 0\.2"):
        Workdir(tmp_path, Config())
    assert json.loads((tmp_path / "config.json").read_text()) == other


def test_a_directory_that_another_process_does_not_see_is_named(tmp_path, monkeypatch):
    """As if the first process had created it on a disk of its own."""
    monkeypatch.setattr(processes, "is_first", lambda: False)
    with pytest.raises(runtime.WorkdirError, match="does not see the workdir that process 0 has created"):
        Workdir(tmp_path / "run", Config())


def test_an_unreadable_config_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"se')
    with pytest.raises(runtime.WorkdirError, match=": not JSON"):
        Workdir(tmp_path, Config())


@pytest.mark.parametrize("text", [b'{"st', b"[]", b'{"step": "x"}', b'{"step": 3, "metrics": {}}', b"\xff"])
def test_a_damaged_summary_is_named(tmp_path, text):
    workdir = Workdir(tmp_path, Config())
    (tmp_path / "summary.json").write_bytes(text)
    with pytest.raises(runtime.WorkdirError, match=r"summary\.json: (not JSON|got \[\]|damaged)"):
        workdir.read_summary()
    workdir.close()


def test_only_one_at_a_time(tmp_path):
    first = Workdir(tmp_path, Config())
    with pytest.raises(runtime.WorkdirError, match="in use by another process"):
        Workdir(tmp_path, Config())
    first.close()
    Workdir(tmp_path, Config()).close()


def test_summaries_are_replaced_whole(tmp_path):
    workdir = Workdir(tmp_path, Config())
    assert workdir.read_summary() is None
    summary = {"step": 1, "metrics": {}, "results": {}}
    workdir.write_summary(summary)
    with pytest.raises(ValueError, match="not JSON compliant"):
        workdir.write_summary({"step": float("nan")})
    assert workdir.read_summary() == summary
    workdir.write_summary(None)
    workdir.write_summary(None)
    assert workdir.read_summary() is None
    workdir.close()


def test_json_ends_with_a_newline_and_leaves_no_other_file(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1})
    assert (tmp_path / "a.json").read_text().endswith("}\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


class Layers(NamedTuple):
    """Parameters whose order in the tree is not that of their names."""

    k: Any
    h: Any


def test_the_digest_of_parameters_is_its_definition():
    layers = Layers(k=jnp.array([[3]], jnp.int32), h=jnp.bfloat16(0.5))
    params = {"b": np.array([1.5, -2.0], ">f4"), "a": layers}
    expected = hashlib.sha256()
    expected.update(b"['a'].h bfloat16 []\n" + bytes([0x00, 0x3F]))
    expected.update(b"['a'].k int32 [1, 1]\n" + bytes([3, 0, 0, 0]))
    expected.update(b"['b'] float32 [2]\n" + np.array([1.5, -2.0], "<f4").tobytes())
    assert runtime.params_sha256(params) == expected.hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        {"w": np.array([1.0, 2.0, -0.0], np.float32)},
        {"w": np.array([1.0, 2.0, 0.0], np.float64)},
        {"w": np.array([[1.0, 2.0, 0.0]], np.float32)},
        {"v": np.array([1.0, 2.0, 0.0], np.float32)},
    ],
    ids=["value", "type", "shape", "name"],
)
def test_the_digest_shows_any_difference(other):
    assert runtime.params_sha256({"w": np.array([1.0, 2.0, 0.0], np.float32)}) != runtime.params_sha256(other)


def test_the_commit_is_dirty_by_changes_to_code_not_to_results(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    def git(*arguments):
        identity = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True, text=True
        ).stdout.strip()

    (tmp_path / "results").mkdir()
    (tmp_path / "code").mkdir()
    files = [tmp_path / "results" / "speed.json", tmp_path / "code" / "a.py"]
    assert commit_of(tmp_path / "code") is None
    git("init", "--quiet")
    for file in files:
        file.write_text("1")
    git("add", ".")
    git("commit", "--quiet", "--message=a")
    commit = git("rev-parse", "HEAD")
    (tmp_path / "code" / "new.py").touch()
    files[0].write_text("2")
    assert commit_of(tmp_path / "code") == commit
    files[1].write_text("2")
    assert commit_of(tmp_path / "code") == f"{commit}-dirty"


def test_a_copied_run_is_still_its_run(tmp_path):
    Workdir(tmp_path / "a", Config()).close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    Workdir(tmp_path / "b", Config()).close()
