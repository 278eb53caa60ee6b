"""The list of experiments, and functions that find the experiment of a run."""

import dataclasses
import importlib
from pathlib import Path
from typing import Any

from experiments import runtime
from experiments.exporting.interface import Exportable
from experiments.exporting.pretrained import NEW_TOKENS, of_pretrained
from experiments.runtime.workdir import EXPERIMENT, WorkdirError, read_json
from logic_zoo import folders
from tp_transformer.pretrained import MODEL_TYPE

NAMES = (
    "boxworld",
    "mathematics",
    "folnet_pretrain",
    "folnet_finetune",
    "folnet_language",
    "kinship",
    "llrnn",
    "reasoning",
)
"""Names of the experiments, which are also the names of their folders."""

EXPERIMENTS: dict[str, runtime.Experiment] = {
    name: importlib.import_module(f"experiments.{name}").EXPERIMENT for name in NAMES
}


def read_settings(path: Path) -> dict[str, Any]:
    """Reads the `config.json` of a directory.

    Raises:
        ValueError: if the file is missing or not a JSON object.
    """
    try:
        return read_json(path / "config.json")
    except (OSError, WorkdirError) as error:
        raise ValueError(f"{path}: no trained model: {error}") from error


def experiment_of(path: Path) -> runtime.Experiment:
    """Finds the experiment that a run or a released folder belongs to.

    Raises:
        ValueError: if there is no config, or it matches no experiment in `EXPERIMENTS`.
    """
    settings = read_settings(path)
    name = settings.get(EXPERIMENT)
    for experiment in EXPERIMENTS.values():
        fields = {field.name for field in dataclasses.fields(experiment.config)}
        # Older runs did not record their experiment; it is the one whose config has all their fields.
        if name == experiment.name or (name is None and set(settings) <= fields):
            return experiment
    raise ValueError(
        f"{path}/config.json: matches no known experiment, expected one of {', '.join(EXPERIMENTS)}"
    )


def read_run(path: Path) -> tuple[runtime.Experiment, runtime.RunConfig]:
    """Reads the experiment and the config of a run or of a released folder.

    Raises:
        ValueError: if `path` is neither.
    """
    path = runtime.releasing.find(path)
    experiment = experiment_of(path)
    return experiment, runtime.releasing.read_run_config(experiment.config, path)


def open_model(
    path: Path | str, *, step: int | None = None, seed: int = 0, new_tokens: int = NEW_TOKENS
) -> Exportable:
    """Opens a trained model.

    Args:
        path: the name of a model that comes with this code, such as "boxworld/quick_simplicial"; or a run's
            directory, a released folder, or a directory for `from_pretrained`. A fine-tuning run gives its
            best model.
        step: step of the checkpoint to open; the last by default.
        seed: index of the seed to open, for runs that train several agents.
        new_tokens: maximum number of tokens that a generating FOLNet writes.

    Raises:
        ValueError: with the path and the reason, or with the known names, if there is no model.
        runtime.CheckpointError: if there is no such checkpoint, or it is damaged.
    """
    given, path = path, runtime.releasing.find(path)
    settings = read_settings(path)
    is_mathematics = settings.get(folders.TYPE) == MODEL_TYPE
    if folders.TYPE in settings and not is_mathematics:
        return of_pretrained(path, new_tokens)
    experiment = EXPERIMENTS["mathematics"] if is_mathematics else experiment_of(path)
    if experiment.open_model is None:
        raise ValueError(f"{path}: got a run of {experiment.name!r}, whose models cannot be opened")
    opened = experiment.open_model(path, step=step, seed=seed)
    name = f"experiments.{experiment.name}"
    source = {"experiment": name, "run": str(given), **opened.source, "config": settings}
    return dataclasses.replace(opened, source=source)
