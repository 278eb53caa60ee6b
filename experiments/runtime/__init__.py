"""The training runtime, written once so that an experiment is one short readable file.

An experiment provides a config and pure functions; `fit` does the rest: steps on all devices, checkpoints
with automatic resume, metrics, the summary, and progress. A complete example::

    # experiments/line/config.py: the settings and their presets
    @dataclasses.dataclass
    class Config(runtime.RunConfig):
        experiment: ClassVar[str] = "line"

        lr: float = 0.1
        noise: str = "none"

        def validate(self):
            super().validate()
            runtime.one_of("noise", self.noise, ["none", "normal"])

    def quick() -> Config:
        return Config(steps=200, log_every=50, checkpoint_every=100)

    get_config = runtime.Presets(quick=quick)

    # experiments/line/train.py: the training problem
    def main(config: Config, *, workdir, parallel="jit"):
        def init(key):                       # -> params
            return {"slope": jnp.zeros(())}

        def sample(key, step):               # -> a whole batch, drawn on the device
            x = jax.random.normal(key, (config.batch_size,))
            return {"x": x, "y": 3 * x}

        def loss(params, batch, key):        # -> sums over the examples in `batch`, not means
            error = params["slope"] * batch["x"] - batch["y"]
            count = error.size
            return runtime.Sums(jnp.sum(error**2), count, {"absolute": (jnp.sum(abs(error)), count)})

        def evaluate(params):                # -> numbers, recorded as eval/NAME
            return {"distance": abs(params["slope"] - 3)}

        return runtime.fit(config, init=init, loss=loss, sample=sample, optimizer=optax.sgd(config.lr),
                           evaluate=evaluate, workdir=workdir, parallel=parallel)

    # experiments/line/__init__.py: the entry point for programs over all experiments; listed in registry.py
    EXPERIMENT = runtime.Experiment(Config, get_config, main)

    # experiments/line/__main__.py
    runtime.launch(EXPERIMENT)

`python -m experiments.line --config=quick --config.lr=0.2 --workdir=DIR --parallel=jit --mesh=data:4,model:2
--fsdp` runs it (the last three flags set the `Layout` on several devices). A misspelt field, a value of the
wrong type, and anything that `validate` rejects are reported in one line (exit status 2) before any file is
written. From Python, `main(Config(...), workdir=None)` keeps no files; `fit` returns a `FitResult`
(`state`, `params`, `step`, `metrics`, `results`, `train_seconds`, `summary`).

The workdir contains `config.json`, `metrics.jsonl` (one line per log interval: `step`, `loss`, `grad_norm`,
`train_seconds`, the metrics of the loss, `eval/...`), `checkpoints/`, and at the end `summary.json` (`step`,
`metrics`, `results`, times, devices, versions, commit, `params_sha256`). When started again, a killed run
continues from its last intact checkpoint, and a finished run returns at once. For data from the host, pass
`batches(step)` instead of `sample`. For a measurement at the end only, pass `conclude(params)`; its values
are stored in the summary's `results`.

Figures: `plots.curve_figure`, `plots.heatmap_figure`, `plots.save`. Confidence intervals over seeds:
`intervals.mean_interval`, `intervals.wilson_interval`. Metrics: `metrics.read(workdir / "metrics.jsonl")`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from experiments.runtime import metrics, releasing
from experiments.runtime.checkpoints import CheckpointError
from experiments.runtime.config import (
    Presets,
    Reordered,
    RunConfig,
    Variant,
    added,
    at_least,
    one_of,
    resumable,
)
from experiments.runtime.experiment import Card, Experiment, Stop
from experiments.runtime.fit import fit
from experiments.runtime.looping import Engine, FitResult, NonFiniteLoss, Preempted, loop
from experiments.runtime.mesh import Layout
from experiments.runtime.optional import can_draw
from experiments.runtime.processes import is_first
from experiments.runtime.training import Sums, TrainState
from experiments.runtime.workdir import WorkdirError, params_sha256, read_config

if TYPE_CHECKING:
    from experiments.runtime import intervals, plots
    from experiments.runtime.launching import launch, run_program

__all__ = [
    "Card",
    "CheckpointError",
    "Engine",
    "Experiment",
    "FitResult",
    "Layout",
    "NonFiniteLoss",
    "Preempted",
    "Presets",
    "Reordered",
    "RunConfig",
    "Stop",
    "Sums",
    "TrainState",
    "Variant",
    "WorkdirError",
    "added",
    "at_least",
    "can_draw",
    "fit",
    "intervals",
    "is_first",
    "launch",
    "loop",
    "metrics",
    "one_of",
    "params_sha256",
    "plots",
    "read_config",
    "releasing",
    "resumable",
    "run_program",
]


def __getattr__(name: str) -> Any:
    # Matplotlib and SciPy account for half of the start-up time, and many processes draw nothing.
    if name in ("intervals", "plots"):
        return importlib.import_module(f"{__name__}.{name}")
    if name in ("launch", "run_program"):  # the command line needs packages that training does not
        return getattr(importlib.import_module(f"{__name__}.launching"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
