r"""Fine-tuning of FOLNet (Chen 2023, Section 4, Appendices B and C) on GLUE, SQuAD 2.0, FOLIO, CLUTRR.

    python -m experiments.folnet_finetune --config=rte \
        --config.data_dir=data --config.checkpoint=models/folnet --workdir=runs/rte
    python -m experiments.folnet_finetune --config=rte \
        --config.sweep=16gb --config.seeds=5 --workdir=runs/rte-sweep

The first trains a model from a directory, as `experiments.folnet_pretrain.load --pretrained` and
`experiments.folnet_pretrain.convert` make them, or with `--config.checkpoint=` from scratch. A run keeps its
last checkpoints, the best model (`best/`, again a directory to start from) and the best one's predictions
(`predictions/`). The second goes through Table 9's settings, five seeds each, a run in a directory of its
own, and writes `sweep.md` and `sweep.json` with the medians; started again, it goes on where it was. Of
finished runs only the chosen setting's models are kept, unless `--config.keep=all`.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from experiments import runtime
from experiments.folnet_finetune import data as finetune_data
from experiments.folnet_finetune import measures, sweep
from experiments.folnet_finetune import model as finetune_model
from experiments.folnet_finetune.config import Config
from experiments.folnet_finetune.data import Data
from experiments.runtime import processes
from experiments.runtime.feeding import Fed
from experiments.runtime.fit import Descent
from experiments.runtime.training import Program, PyTree, Task, TrainState
from experiments.runtime.workdir import read_json, write_json

DATA = ".data.json"
"""In a run's directory, what its data was: hidden, so that a workdir that has nothing else is still free."""


def main(
    config: Config, *, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> runtime.FitResult | sweep.Report:
    """Trains one model, or several if the config has seeds or a sweep; see `train_one` and `train_all`."""
    if config.seeds == 1 and not config.sweeps:
        return train_one(config, workdir=workdir, parallel=parallel)
    if workdir is None:
        raise ValueError("workdir must be given for several runs, got None")
    return train_all(config, workdir=workdir, parallel=parallel)


def train_one(
    config: Config, *, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> runtime.FitResult:
    """Trains one model.

    Args:
        config: see `experiments.folnet_finetune.config`.
        workdir: where the run is kept; None keeps nothing.
        parallel: see `runtime.fit`.

    Raises:
        runtime.WorkdirError: as `open_data`; or the workdir is another run's.
    """
    return train(config, open_data(config), workdir, parallel)


def train_all(config: Config, *, workdir: Path, parallel: str | runtime.Layout = "jit") -> sweep.Report:
    """Trains a model for each setting and seed, and compares them.

    Args:
        config: with several seeds, a sweep, or both.
        workdir: above all runs.
        parallel: see `runtime.fit`.

    Raises:
        runtime.WorkdirError: as `open_data`; or a run's directory is another run's.
    """
    data = open_data(config)

    def run(of: Config, directory: Path) -> dict[str, Any]:
        return train(of, data, directory, parallel).summary

    return sweep.run_all(config, data.train.rows, workdir, run)


def open_data(config: Config) -> Data:
    """The task's splits, when all is there that a run needs.

    Raises:
        runtime.WorkdirError: something is missing, damaged or does not fit; all that is missing is told at
            once.
    """
    if missing := [*finetune_data.missing(config), *finetune_model.misfits(config)]:
        raise runtime.WorkdirError("; ".join(missing))
    try:
        tokenizer = finetune_data.open_tokenizer(config)
        finetune_data.check_rows(tokenizer, finetune_model.make(config).config.vocab_size)
        return finetune_data.open_data(config, tokenizer)
    except ValueError as error:
        raise runtime.WorkdirError(str(error)) from error


def train(
    config: Config,
    data: Data,
    workdir: str | os.PathLike[str] | None,
    parallel: str | runtime.Layout = "jit",
) -> runtime.FitResult:
    """One run.

    Raises:
        runtime.WorkdirError: the workdir is another run's, or was begun with other data.
    """
    config = config.resolved(data.train.rows)
    config.validate()
    if workdir is not None:
        told = finetune_data.fingerprint(data)
        processes.first_before_others(lambda: _keep_data(told, Path(workdir)), runtime.WorkdirError)
    model = finetune_model.make(config)
    task = Task(
        config.seed,
        config.batch_size,
        finetune_model.make_init(model),
        finetune_model.make_loss(config, model),
        config.make_optimizer(),
        accumulate=config.accumulate,
    )
    program = Program(task, parallel)
    batches = finetune_data.Batches(data.train.features, config)
    tuning = Tuning(program, lambda step: processes.own_rows(batches(step)), config, model)
    measure = measures.Measure(config, model, data, parallel)
    best = measures.Best(None if workdir is None else Path(workdir) / measures.BEST, model, data)
    latest: dict[int, dict[str, float]] = {}

    def evaluate(params):
        with program.measuring():
            found = measure.development(params)
        latest.clear()
        latest[tuning.step] = found
        # Not where a session's time was up: what is kept must not depend on how often a run was stopped.
        if found and (tuning.step % config.eval_every == 0 or tuning.step == config.steps):
            best.offer(tuning.step, found, params)
        return found

    def conclude(params):
        with program.measuring():
            found = latest[tuning.step] if tuning.step in latest else measure.development(params)
            last = {"step": tuning.step, **found}
            return measures.conclude(config, measure, best, data, params, last, workdir)

    return runtime.loop(
        config, tuning, evaluate=evaluate, conclude=conclude, workdir=workdir, name=config.task
    )


def _keep_data(fingerprint: dict[str, Any], workdir: Path) -> None:
    """Refuses a workdir that was begun with other texts or pieces: its steps would not fit those to come."""
    path = workdir / DATA
    if path.exists():
        before = read_json(path)
        if changed := [name for name in fingerprint if before.get(name) != fingerprint[name]]:
            raise runtime.WorkdirError(
                f"workdir {workdir} was begun with other data: {', '.join(changed)} changed since; choose "
                "another workdir"
            )
    elif not workdir.exists() or not any(workdir.iterdir()):  # else it is for the loop to say whose it is
        workdir.mkdir(parents=True, exist_ok=True)
        write_json(path, fingerprint)


class Tuning(Descent):
    """Gradient descent that begins at a checkpoint, and knows which step is measured."""

    def __init__(self, program: Program, batches: Callable[[int], Any], config: Config, model: Any):
        """Takes what `runtime.fit` makes an engine of, and where the parameters come from."""
        super().__init__(program, Fed(program, batches, config.steps))
        self._config, self._model = config, model
        self.step = 0
        """Updates behind the parameters that were given out last."""
        if config.checkpoint:
            self.initial = self._pretrained

    def unplace(self, state: TrainState) -> TrainState:
        """See `Descent.unplace`."""
        unplaced = super().unplace(state)
        self.step = int(unplaced.step)
        return unplaced

    def params_of(self, state: TrainState) -> PyTree:
        """See `Descent.params_of`."""
        return self.unplace(state).params

    def _pretrained(self) -> TrainState:
        """The state before the first step. The parameters are put where they will live, not compiled in."""
        where = jax.tree.map(lambda leaf: leaf.sharding, self._program.abstract_state())
        params = jax.device_put(finetune_model.begin(self._config, self._model), where.params)
        optimizer = self._program.task.optimizer
        opt_state = jax.jit(optimizer.init, out_shardings=where.opt_state)(params)
        return TrainState(jax.device_put(jax.numpy.int32(0), where.step), params, opt_state)
