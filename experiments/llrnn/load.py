"""Trained cells, from a run's directory (also of the baseline below it) or a released folder."""

from pathlib import Path
from typing import Any

from experiments.exporting.interface import BATCH, LENGTH, Exportable, Input, Output, describe_source
from experiments.llrnn import measures
from experiments.llrnn.config import Config
from experiments.llrnn.train import abstract_state
from experiments.runtime import releasing
from experiments.runtime.checkpoints import Restored


def load(path: Path, step: int | None = None) -> tuple[Config, Restored]:
    """The config and the state of a run at a checkpoint, the last by default."""
    config = releasing.read_run_config(Config, path)
    return config, releasing.restore(path, abstract_state(config), step)


def open_model(path: Path, *, step: int | None = None, seed: int = 0) -> Exportable:
    """Opens the model of a run for export; see `load`."""
    config, restored = load(path, step)
    return of_recurrent(config, restored.state.params, restored.step)


def of_recurrent(config: Config, params: Any, step: int | None = None) -> Exportable:
    """Sequences of tokens to logits, the scan over the cell inside."""
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
                f"the fields of each step, of {', '.join(map(str, task.fields))} values",
                range=(0, max(task.fields) - 1),
            )
        },
        outputs={"logits": Output((BATCH, LENGTH, task.num_outputs), "of the target's classes")},
        source=describe_source(params, step),
        lengths=None,
        derivable=function,
    )
