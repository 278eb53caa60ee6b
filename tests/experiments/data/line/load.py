"""A fitted line as a function of named arrays."""

from pathlib import Path

from experiments.exporting.interface import BATCH, Exportable, Input, Output, describe_source
from experiments.runtime import releasing

from .config import Config
from .train import abstract_state


def open_model(path: Path, *, step: int | None = None, seed: int = 0) -> Exportable:
    """Opens the line of a run."""
    config = releasing.read_run_config(Config, path)
    restored = releasing.restore(path, abstract_state(config), step)
    return Exportable(
        kind="line",
        function=lambda params, inputs: {"y": params["slope"] * inputs["x"]},
        params=restored.state.params,
        inputs={"x": Input((BATCH,), "float32", "where")},
        outputs={"y": Output((BATCH,), "the line there")},
        source=describe_source(restored.state.params, restored.step),
    )
