"""Finding released models, reading runs and released folders, and converting one into the other."""

from pathlib import Path
from typing import Any

from experiments.runtime import packing
from experiments.runtime.checkpoints import CheckpointError, Checkpoints, Restored
from experiments.runtime.config import RunConfig
from experiments.runtime.workdir import read_config

_PACKAGE = Path(__file__).resolve().parents[1]


def released() -> dict[str, Path]:
    """Returns the folders of the models that come with this code, by name, such as "llrnn/copy".

    They are in `results/` of a checkout; the wheel installs them in `experiments/released/`.
    """
    root = _PACKAGE / "released"
    root = root if root.is_dir() else _PACKAGE.parent / "results"
    found = sorted(file.parent for file in root.glob(f"*/*/{packing.STATE}"))
    return {folder.relative_to(root).as_posix(): folder for folder in found}


def find(path: Path | str) -> Path:
    """Returns a path if it exists, else the folder of the released model with that name.

    Raises:
        ValueError: it is neither.
    """
    if Path(path).exists():
        return Path(path)
    models = released()
    if (name := Path(path).as_posix()) not in models:
        names = ", ".join(map(repr, models))
        raise ValueError(f"weights: got {name!r}, expected a path" + (f" or one of {names}" if names else ""))
    return models[name]


def read_run_config[C: RunConfig](kind: type[C], path: Path | str) -> C:
    """Reads the config of a run's directory or of a released folder.

    Raises:
        ValueError: with the path, if the config is missing, invalid, or of another experiment.
    """
    try:
        config = read_config(kind, Path(path) / "config.json")
        config.validate()
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: not a run of experiments.{kind.experiment}: {error}") from error
    return config


def is_released(path: Path) -> bool:
    """Returns whether `path` is a released folder rather than a run's directory."""
    return (path / packing.STATE).exists()


def restore(path: Path, abstract: Any, step: int | None = None) -> Restored:
    """Reads the state of a run's directory or a released folder, at a step (the last by default).

    Raises:
        CheckpointError: if there is no such checkpoint, or it is damaged.
    """
    if is_released(path):
        restored = packing.read_state(path, abstract)
        if step not in (None, restored.step):
            raise CheckpointError(f"{path}: got step {step}, expected {restored.step}, the only one there")
        return restored
    checkpoints = Checkpoints(path / "checkpoints", every=1, keep=2)
    there = checkpoints.steps()
    if not there:
        raise CheckpointError(f"{checkpoints.directory}: got no checkpoint, expected at least one")
    return checkpoints.read(there[0] if step is None else step, abstract)


def transfer(source: Path, target: Path, abstract: Any, *, release: bool) -> str:
    """Releases a run as a folder, or makes a run from a released folder; returns a one-line summary.

    Raises:
        CheckpointError: if the source has no intact state.
        WorkdirError: if the target contains other files.
    """
    if release:
        file = packing.pack(source, abstract, target)
        return f"{file}: {file.stat().st_size / 1e6:.1f} MB"
    restored = packing.unpack(source, abstract, target)
    return f"{target}: step {restored.step}; the run's own command continues from there"
