"""The list of experiments, and which of them a run belongs to: what programs over all experiments ask."""

import dataclasses
import importlib
from pathlib import Path
from typing import Any

from experiments import runtime
from experiments.exporting.interface import Exportable
from experiments.exporting.pretrained import NEW_TOKENS, of_pretrained
from experiments.runtime.workdir import EXPERIMENT, WorkdirError, read_json

NAMES = (
    "boxworld",
    "mathematics",
    "folnet_pretrain",
    "folnet_finetune",
    "kinship",
    "llrnn",
)
"""The experiments: each is a folder of this name beside this file."""

EXPERIMENTS: dict[str, runtime.Experiment] = {
    name: importlib.import_module(f"experiments.{name}").EXPERIMENT for name in NAMES
}


def read_settings(path: Path) -> dict[str, Any]:
    """Reads the `config.json` of a directory.

    Raises:
        ValueError: there is none, or it is not a JSON object.
    """
    try:
        return read_json(path / "config.json")
    except (OSError, WorkdirError) as error:
        raise ValueError(f"{path} holds no trained model: {error}") from error


def experiment_of(path: Path) -> runtime.Experiment:
    """Finds the experiment that a run or a released folder belongs to.

    Raises:
        ValueError: there is no config, or it is of no experiment in `EXPERIMENTS`.
    """
    settings = read_settings(path)
    name = settings.get(EXPERIMENT)
    for experiment in EXPERIMENTS.values():
        fields = {field.name for field in dataclasses.fields(experiment.config)}
        # Runs did not always record their experiment; then it is the one whose config has all their fields.
        if name == experiment.name or (name is None and set(settings) <= fields):
            return experiment
    raise ValueError(
        f"{path}/config.json matches no known experiment; expected one of {', '.join(EXPERIMENTS)}"
    )


def read_run(path: Path) -> tuple[runtime.Experiment, runtime.RunConfig]:
    """Reads the experiment and the config of a run or of a released folder.

    Raises:
        ValueError: it holds neither.
    """
    experiment = experiment_of(path)
    return experiment, runtime.releasing.read_run_config(experiment.config, path)


def open_model(
    path: Path | str, *, step: int | None = None, seed: int = 0, new_tokens: int = NEW_TOKENS
) -> Exportable:
    """Opens a trained model.

    Args:
        path: a run's directory, a released folder or a directory for `from_pretrained`; of a run that
            fine-tuned, the best model.
        step: of which checkpoint of a run; the last by default.
        seed: which of the run's seeds, for agents.
        new_tokens: how many a FOLNet that writes texts writes at most.

    Raises:
        ValueError: there is no model; the path and what was wrong.
        runtime.CheckpointError: there is no such checkpoint, or it is damaged.
    """
    path = Path(path)
    settings = read_settings(path)
    if "model_type" in settings:
        return of_pretrained(path, new_tokens)
    experiment = experiment_of(path)
    if experiment.open_model is None:
        raise ValueError(f"{path} is a run of {experiment.name}, whose models cannot be opened")
    opened = experiment.open_model(path, step=step, seed=seed)
    name = f"experiments.{experiment.name}"
    source = {"experiment": name, "run": str(path), **opened.source, "config": settings}
    return dataclasses.replace(opened, source=source)
