"""Loads trained cells from a run's directory, its `baseline/` folder, a released folder, or by name."""

from pathlib import Path
from typing import Any

from experiments.exporting.interface import BATCH, LENGTH, Exportable, Input, Output, describe_source
from experiments.llrnn import measures
from experiments.llrnn.config import Config
from experiments.llrnn.train import abstract_state
from experiments.runtime import releasing
from experiments.runtime.checkpoints import Restored


def load(path: Path | str, step: int | None = None) -> tuple[Config, Restored]:
    """Loads the config and the state of a run from a checkpoint, by default the last one."""
    path = releasing.find(path)
    config = releasing.read_run_config(Config, path)
    return config, releasing.restore(path, abstract_state(config), step)


def open_model(path: Path, *, step: int | None = None, seed: int = 0) -> Exportable:
    """Opens the model of a run for export; see `load`."""
    config, restored = load(path, step)
    return of_recurrent(config, restored.state.params, restored.step)


def of_recurrent(config: Config, params: Any, step: int | None = None) -> Exportable:
    """Wraps a model as a function from token sequences to logits that includes the scan over the cell."""
    task = config.make_task()
    model = config.make_model(task)

    def function(params, inputs):
        return {"logits": measures.predict(model, params, task.encode(inputs["tokens"]))}

    return Exportable(
        kind="recurrent",
        function=function,
        params=params,
        inputs={
            "tokens": Input(
                (BATCH, LENGTH, len(task.fields)),
                "int32",
                f"the fields of each step, with {', '.join(map(str, task.fields))} values",
                range=(0, max(task.fields) - 1),
            )
        },
        outputs={"logits": Output((BATCH, LENGTH, task.num_outputs), "logits of the target's classes")},
        source=describe_source(params, step),
        lengths=None,
        derivable=function,
    )
