"""The training runtime, written once so that an experiment is one short readable file.

An experiment brings a config and pure functions; `fit` does the rest: steps on all devices, checkpoints with
automatic resume, the record, the summary, progress. A complete one::

    # experiments/line/config.py: what can be chosen, and the presets
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

    # experiments/line/train.py: what it does
    def main(config: Config, *, workdir, parallel="jit"):
        def init(key):                       # -> params
            return {"slope": jnp.zeros(())}

        def sample(key, step):               # -> a whole batch, drawn on the device
            x = jax.random.normal(key, (config.batch_size,))
            return {"x": x, "y": 3 * x}

        def loss(params, batch, key):        # -> sums over the examples it is given, not means
            error = params["slope"] * batch["x"] - batch["y"]
            count = error.size
            return runtime.Sums(jnp.sum(error**2), count, {"absolute": (jnp.sum(abs(error)), count)})

        def evaluate(params):                # -> numbers, recorded as eval/NAME
            return {"distance": abs(params["slope"] - 3)}

        return runtime.fit(config, init=init, loss=loss, sample=sample, optimizer=optax.sgd(config.lr),
                           evaluate=evaluate, workdir=workdir, parallel=parallel)

    # experiments/line/__init__.py: what programs over all experiments need of it; it is named in registry.py
    EXPERIMENT = runtime.Experiment(Config, get_config, main)

    # experiments/line/__main__.py
    runtime.launch(EXPERIMENT)

`python -m experiments.line --config=quick --config.lr=0.2 --workdir=DIR --parallel=jit --mesh=data:4,model:2
--fsdp` runs it (the last three choose how it is laid out on several devices: `Layout`); a misspelt field, a
value of the wrong type and what `validate` refuses are reported in one line (exit status 2) before anything
is written. From Python, `main(Config(...), workdir=None)` keeps no files; `fit` returns a `FitResult`
(`state`, `params`, `step`, `metrics`, `results`, `train_seconds`, `summary`).

The workdir holds `config.json`, `metrics.jsonl` (a line a log interval: `step`, `loss`, `grad_norm`,
`train_seconds`, the metrics of the loss, `eval/...`), `checkpoints/`, and at the end `summary.json` (`step`,
`metrics`, `results`, times, devices, versions, commit, `params_sha256`). Started again, a killed run
continues from its last intact checkpoint and a finished one returns at once. Host-fed data: give
`batches(step)` instead of `sample`. A measurement made once, at the end: `conclude(params)`, kept in the
summary's `results`.

Figures: `plots.curve_figure`, `plots.heatmap_figure`, `plots.save`. Claims over seeds:
`intervals.mean_interval`, `intervals.wilson_interval`. Records: `metrics.read(workdir / "metrics.jsonl")`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from experiments.runtime import metrics, releasing
from experiments.runtime.checkpoints import CheckpointError
from experiments.runtime.config import Presets, RunConfig, at_least, one_of, resumable
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
    "RunConfig",
    "Stop",
    "Sums",
    "TrainState",
    "WorkdirError",
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
    # Matplotlib and SciPy take half of the time it takes to start, and many a process draws nothing.
    if name in ("intervals", "plots"):
        return importlib.import_module(f"{__name__}.{name}")
    if name in ("launch", "run_program"):  # a command line needs packages that training does not
        return getattr(importlib.import_module(f"{__name__}.launching"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
