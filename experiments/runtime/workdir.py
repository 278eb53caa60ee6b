"""The directory of a run: who may use it, which config it belongs to, and the summary at the end."""

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.runtime import processes
from experiments.runtime.config import RunConfig, from_dict


class WorkdirError(ValueError):
    """The workdir cannot be used for this run; nothing was written to it."""


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        OSError: it cannot be read.
        WorkdirError: it is damaged, or holds something else; the file is named.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WorkdirError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise WorkdirError(f"{path} holds {value!r:.60}, expected an object")
    return value


EXPERIMENT = "experiment"
"""The key of a run's `config.json` that names its experiment; the others are the fields of the config."""


def config_dict(config: RunConfig) -> dict[str, Any]:
    """A run's config as `config.json` holds it: its experiment, and its fields with tuples as lists."""
    named = {EXPERIMENT: config.experiment} if config.experiment else {}
    return named | json.loads(json.dumps(dataclasses.asdict(config)))


def config_lines(config: RunConfig) -> list[str]:
    """A config dataclass as lines, a field each: `model.width=64`."""
    return [f"{name}={json.dumps(value)}" for name, value in flatten(config_dict(config)).items()]


def read_config[Config: RunConfig](cls: type[Config], path: Path) -> Config:
    """Reads the config that a run has left as `config.json`, as a `cls`.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not JSON, holds a field that `cls` does not have, or is another experiment's.
    """
    values = read_json(path)
    if (found := values.pop(EXPERIMENT, cls.experiment)) != cls.experiment:  # absent from earlier folders
        raise ValueError(f"{path}: got a config of {found}, expected one of {cls.experiment}")
    return from_dict(cls, values)


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one, with dotted names."""
    flat = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def config_difference(before: dict[str, Any], config: Any) -> list[str]:
    """Returns what keeps a run from being continued with another config: a line for each field that differs.

    `before` is what `config_dict` returned. Fields declared `resumable` may differ, `steps` only upwards.
    """
    old, new = flatten(before), flatten(config_dict(config))
    if EXPERIMENT in new:
        old.setdefault(EXPERIMENT, new[EXPERIMENT])  # folders written earlier do not name it
    free = {field.name for field in dataclasses.fields(config) if field.metadata.get("resumable")}
    missing = object()
    lines = []
    for name in [*old, *(name for name in new if name not in old)]:
        was, now = old.get(name, missing), new.get(name, missing)
        # A free field that the run does not have was added to the program since.
        if was == now or (
            name in free and now is not missing and (name != "steps" or was is missing or was <= now)
        ):
            continue
        shown = ["absent" if value is missing else json.dumps(value) for value in (was, now)]
        hint = " (it may only be raised)" if name == "steps" and name in free else ""
        lines.append(f"{name}: {shown[0]} there, {shown[1]} now{hint}")
    return lines


class Workdir:
    """A run's directory, held by this process until it is closed (or dies)."""

    def __init__(self, path: str | os.PathLike, config: Any):
        """Checks that the directory is this run's or free, takes it, and writes `config.json`.

        Raises:
            WorkdirError: it belongs to a run with another config (the difference is in the message), holds
                other files, or another process is at work in it.
        """
        self.path = Path(path).absolute()
        self._lock = None
        try:
            # All look before the first makes anything, which the others would take for somebody else's.
            processes.in_all(lambda: self._check(config), WorkdirError)
            processes.in_all(lambda: self._take(config), WorkdirError)
            processes.in_all(self._check_shared, WorkdirError)
        except BaseException:
            self.close()
            raise

    def _take(self, config: Any) -> None:
        if processes.is_first():
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("w")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                self._lock.close()
                raise WorkdirError(f"another process is at work in workdir {self.path}") from error
            self._check(config)  # again: another process may have come first and be gone
            write_json(self.path / "config.json", config_dict(config))

    def _check_shared(self) -> None:
        if not (self.path / "config.json").exists():
            raise WorkdirError(
                f"workdir {self.path} is not seen here as process 0 has made it; it must be on a file system "
                "that all processes share"
            )

    def _check(self, config: Any) -> None:
        file = self.path / "config.json"
        # Listed first: a process that starts at the same time may be about to write config.json.
        names = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
        if file.exists():
            before = read_json(file)
            if lines := config_difference(before, config):
                raise WorkdirError(
                    f"workdir {self.path} belongs to a run with another config; choose another workdir, or "
                    "the same config to continue that run:" + "".join(f"\n  {line}" for line in lines)
                )
        elif self.path.exists():
            if not self.path.is_dir():
                raise WorkdirError(f"workdir {self.path} is not a directory")
            # Hidden files are ours (the lock, a config.json whose writing was interrupted) or nobody's.
            if others := sorted(name for name in names if not name.startswith(".")):
                raise WorkdirError(
                    f"workdir {self.path} has no config.json but is not empty ({', '.join(others[:5])}"
                    f"{', ...' if len(others) > 5 else ''}); choose another"
                )

    def read_summary(self) -> dict[str, Any] | None:
        """The summary a finished run has left, or None.

        Raises:
            WorkdirError: it is damaged.
        """
        file = self.path / "summary.json"
        if not file.exists():
            return None
        summary = read_json(file)
        kinds = {"step": int, "metrics": dict, "results": dict}
        if wrong := [name for name, kind in kinds.items() if not isinstance(summary.get(name), kind)]:
            raise WorkdirError(f"{file} is damaged: its {wrong[0]} is {summary.get(wrong[0])!r:.60}")
        return summary

    def write_summary(self, summary: dict[str, Any] | None) -> None:
        """Writes `summary.json`; None removes one that training on will make untrue."""
        if processes.is_first() and summary is None:
            (self.path / "summary.json").unlink(missing_ok=True)
        elif processes.is_first():
            write_json(self.path / "summary.json", summary)

    def close(self) -> None:
        """Lets others have the directory."""
        if self._lock is not None:
            self._lock.close()


@contextlib.contextmanager
def whole(path: Path) -> Generator[Path]:
    """Yields a name to write a file under; even after a kill `path` is the old file or the whole new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Writes JSON, whole or not at all."""
    with whole(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def params_sha256(params: Any) -> str:
    """Returns 64 hexadecimal digits, equal exactly when two trees of parameters are.

    The SHA-256 of, for each parameter sorted by name, its name, type, shape and bytes (little-endian).
    """
    digest = hashlib.sha256()
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
    for name in sorted(leaves):
        value = np.ascontiguousarray(jax.device_get(leaves[name]))
        if value.dtype.byteorder == ">":
            value = value.astype(value.dtype.newbyteorder("<"))
        digest.update(f"{name} {value.dtype} {list(np.shape(leaves[name]))}\n".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def surroundings() -> dict[str, Any]:
    """Where a run took place: devices, versions, and the commit of the code if it is a git checkout."""
    devices = jax.devices()
    return {
        "devices": {
            "platform": devices[0].platform,
            "kind": devices[0].device_kind,
            "count": len(devices),
            "processes": jax.process_count(),
            "cpus": os.cpu_count(),
        },
        "versions": versions("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy"),
        "commit": _commit(),
    }


def versions(*packages: str) -> dict[str, str]:
    """The versions of Python and of packages, by name."""
    found = {name: importlib.metadata.version(name) for name in packages}
    return {"python": platform.python_version(), **found}


@functools.cache
def _commit() -> str | None:
    return commit_of(Path(__file__).parent)


def commit_of(folder: Path) -> str | None:
    """The commit of a folder's checkout, with `-dirty` if files were changed; None outside or without git.

    Records in `results/` are not code: a measurement writes them, and another may follow it.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()

    try:
        commit = git("describe", "--always", "--abbrev=40", "--exclude=*")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)results")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if changed else commit or None
