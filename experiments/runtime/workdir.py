"""The directory of a run: locking, the check of its config, and the summary."""

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
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.runtime import mesh, processes
from experiments.runtime.config import RunConfig, Variant, from_dict
from logic_zoo.writing import whole


class WorkdirError(ValueError):
    """Raised when a directory cannot be used for a run; nothing was written to it."""


def read_json(path: Path) -> dict[str, Any]:
    """Reads the object in a JSON file.

    Raises:
        OSError: if the file cannot be read.
        WorkdirError: with the path, if the content is not a JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WorkdirError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise WorkdirError(f"{path}: got {value!r:.60}, expected a JSON object")
    return value


EXPERIMENT = "experiment"
"""The key in `config.json` for the experiment's name; the other keys are the fields of the config."""


def config_dict(config: RunConfig) -> dict[str, Any]:
    """Returns the content of `config.json`: the experiment's name, and the fields with tuples as lists."""
    named = {EXPERIMENT: config.experiment} if config.experiment else {}
    return named | json.loads(json.dumps(dataclasses.asdict(config)))


def config_lines(config: RunConfig) -> list[str]:
    """Formats a config dataclass as one line per field, such as `model.width=64`."""
    return [f"{name}={json.dumps(value)}" for name, value in flatten(config_dict(config)).items()]


def read_config[Config: RunConfig](cls: type[Config], path: Path) -> Config:
    """Reads a run's `config.json` as an instance of `cls`.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it is not JSON, has a field that `cls` lacks, or belongs to another experiment.
    """
    values = read_json(path)
    if (found := values.pop(EXPERIMENT, cls.experiment)) != cls.experiment:  # absent from earlier folders
        raise ValueError(f"{path}: got a config of {found!r}, expected one of {cls.experiment!r}")
    return from_dict(cls, values)


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens nested dicts to a single dict with dotted names."""
    flat = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def added_defaults(config: Any, prefix: str = "") -> dict[str, Any]:
    """Returns the default of each field declared `added`, by dotted name, in the config's parts too.

    Like `config_dict`, with tuples as lists.
    """
    found = {}
    for field in dataclasses.fields(config):
        if field.metadata.get("added"):
            found[prefix + field.name] = json.loads(json.dumps(field.default))
        if dataclasses.is_dataclass(part := getattr(config, field.name)):
            found |= added_defaults(part, f"{prefix}{field.name}.")
    return found


def completed(recorded: dict[str, Any], config: Any) -> dict[str, Any]:
    """Returns fields of a run, by dotted name, as they would be recorded now.

    Fields declared `added` have their default in a run that lacks them, and a `Variant` has no fields but its
    own; earlier runs recorded those of all variants.
    """
    found = dict(recorded)
    for field in dataclasses.fields(config):
        path, part = f"{field.name}.", getattr(config, field.name)
        was = {name.removeprefix(path): recorded[name] for name in recorded if name.startswith(path)}
        if was and isinstance(part, Variant):
            with contextlib.suppress(ValueError):  # a difference in any case
                now = json.loads(json.dumps(dataclasses.asdict(from_dict(type(part), was))))
                for name in was:
                    del found[path + name]
                found |= {path + name: now[name] for name in now if name in was}
    return added_defaults(config) | found


def config_difference(before: dict[str, Any], config: Any) -> list[str]:
    """Returns one line for each field that prevents a run from being continued with another config.

    `before` is the `config_dict` of the run. Fields declared `resumable` may differ; `steps` may only
    increase. Fields declared `added` have their default in a run that lacks them. A number of parts that is
    not chosen yet, `accumulate` = 0, is that of the run.
    """
    old, new = flatten(before), flatten(config_dict(config))
    if EXPERIMENT in new:
        old.setdefault(EXPERIMENT, new[EXPERIMENT])  # folders written earlier do not name it
    if "accumulate" in new:
        old["accumulate"] = old.get("accumulate") or 1  # nor this: every batch was one part
        new["accumulate"] = new["accumulate"] or old["accumulate"]  # see `chunks.resolved`
    old = completed(old, config)
    free = {field.name for field in dataclasses.fields(config) if field.metadata.get("resumable")}
    missing = object()
    lines = []
    for name in [*old, *(name for name in new if name not in old)]:
        was, now = old.get(name, missing), new.get(name, missing)
        # A free field that the run lacks was added to the program later.
        if was == now or (
            name in free and now is not missing and (name != "steps" or was is missing or was <= now)
        ):
            continue
        shown = ["nothing" if value is missing else json.dumps(value) for value in (was, now)]
        hint = " or more" if name == "steps" and name in free else ""
        lines.append(f"{name}: got {shown[1]}, expected {shown[0]}{hint}")
    return lines


class Workdir:
    """A run's directory, locked by this process until `close` or the end of the process."""

    def __init__(self, path: str | os.PathLike, config: Any):
        """Checks that the directory is unused or belongs to this run, locks it, and writes `config.json`.

        Raises:
            WorkdirError: if the directory belongs to a run with another config (the message lists the
                differences), contains other files, or is in use by another process.
        """
        self.path = Path(path).absolute()
        self._lock = None
        try:
            # All processes check before the first one writes; the others would mistake its files for another
            # run's.
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
                raise WorkdirError(f"{self.path}: the workdir is in use by another process") from error
            self._check(config)  # again: another process may have used the directory in the meantime
            write_json(self.path / "config.json", config_dict(config))

    def _check_shared(self) -> None:
        if not (self.path / "config.json").exists():
            raise WorkdirError(
                f"{self.path}: process {jax.process_index()} does not see the workdir that process 0 has "
                "created; it must be on a file system shared by all processes"
            )

    def _check(self, config: Any) -> None:
        file = self.path / "config.json"
        # Listed before the check for config.json, which a concurrent process may be about to write.
        names = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
        if file.exists():
            before = read_json(file)
            if lines := config_difference(before, config):
                raise WorkdirError(
                    f"{self.path}: the workdir belongs to a run with another config; choose another workdir, "
                    "or the same config to continue that run:" + "".join(f"\n  {line}" for line in lines)
                )
        elif self.path.exists():
            if not self.path.is_dir():
                raise WorkdirError(f"{self.path}: got a file, expected a directory")
            # Hidden files are ours (the lock, an interrupted write of config.json) or belong to nobody.
            if others := sorted(name for name in names if not name.startswith(".")):
                raise WorkdirError(
                    f"{self.path}: the workdir has no config.json but is not empty ({', '.join(others[:5])}"
                    f"{', ...' if len(others) > 5 else ''}); choose another"
                )

    def read_summary(self) -> dict[str, Any] | None:
        """Returns the summary of a finished run, or None if there is none.

        Raises:
            WorkdirError: if the file is damaged.
        """
        file = self.path / "summary.json"
        if not file.exists():
            return None
        summary = read_json(file)
        kinds = {"step": int, "metrics": dict, "results": dict}
        if wrong := [name for name, kind in kinds.items() if not isinstance(summary.get(name), kind)]:
            shown, kind = f"{summary.get(wrong[0])!r:.60}", kinds[wrong[0]].__name__
            raise WorkdirError(f"{file}: damaged: {wrong[0]}: got {shown}, expected type {kind}")
        return summary

    def write_summary(self, summary: dict[str, Any] | None) -> None:
        """Writes `summary.json`; None removes the file, which further training would make outdated."""
        if processes.is_first() and summary is None:
            (self.path / "summary.json").unlink(missing_ok=True)
        elif processes.is_first():
            write_json(self.path / "summary.json", summary)

    def close(self) -> None:
        """Releases the lock on the directory."""
        if self._lock is not None:
            self._lock.close()


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file atomically, indented by two spaces."""
    with whole(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def refuse_to_replace(*paths: Path) -> None:
    """Raises ValueError if any of the paths exists."""
    if there := [str(path) for path in paths if path.exists()]:
        raise ValueError(f"{', '.join(there)}: already exists; choose another name")


def params_sha256(params: Any) -> str:
    """Returns the SHA-256 of a tree of parameters as 64 hexadecimal digits.

    The hash covers each parameter's name, dtype, shape and bytes (little-endian), in the order of the names.
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
    """Describes where a run takes place: devices, versions, and the commit of the code in a git checkout."""
    devices = jax.devices()
    return {
        "devices": {
            "platform": devices[0].platform,
            "kind": devices[0].device_kind,
            "count": len(devices),
            "processes": jax.process_count(),
            "cpus": mesh.usable_cores(),
        },
        "versions": versions("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy"),
        "commit": _commit(),
    }


def versions(*packages: str) -> dict[str, str]:
    """Returns the installed versions of Python and of the packages, by name."""
    found = {name: importlib.metadata.version(name) for name in packages}
    return {"python": platform.python_version(), **found}


@functools.cache
def _commit() -> str | None:
    return commit_of(Path(__file__).parent)


def commit_of(folder: Path) -> str | None:
    """Returns the commit of a folder's checkout, with `-dirty` if files have changed, or None without git.

    Changes in `results/` do not count, because measurements write there.
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
