r"""Fine-tunes FOLNet (Chen 2023, Section 4, Appendices B and C) on GLUE, SQuAD 2.0, FOLIO or CLUTRR.

    python -m experiments.folnet_finetune --config=rte --config.data_dir=data \
        --config.checkpoint=models/folnet --workdir=runs/rte
    python -m experiments.folnet_finetune --config=rte --config.sweep=16gb --config.seeds=5 --workdir=runs/all

The first trains one model from a directory, which `folnet_pretrain.load` and `folnet_pretrain.convert` make,
or with `--config.checkpoint=` from scratch. A run keeps its last checkpoints, the best model (`best/`, again
a directory to start from) and its predictions (`predictions/`). The second tries Table 9's settings, five
seeds each, in a directory per run, and writes medians to `sweep.md` and `sweep.json`; started again, it
continues. Of finished runs only the chosen setting's models are kept, unless `--config.keep=all`.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from experiments import runtime
from experiments.folnet_finetune import data, measures, model, sweep
from experiments.folnet_finetune.config import Config
from experiments.folnet_finetune.grid import NO_SWEEP
from experiments.runtime import processes
from experiments.runtime.feeding import Fed
from experiments.runtime.fit import Descent
from experiments.runtime.training import Program, PyTree, Scalar, Task, TrainState
from experiments.runtime.workdir import read_json, write_json
from folnet import objective, tasks
from folnet.tokenization import WordPieceTokenizer

DATA = ".data.json"
"""The data's fingerprint in a workdir; hidden, so that a workdir with nothing else counts as empty."""


def main(
    config: Config, *, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> runtime.FitResult | sweep.Report:
    """Trains a model, or one for each setting and seed.

    Args:
        config: see `experiments.folnet_finetune.config`.
        workdir: where the run is kept, or the directories of all runs; None keeps nothing of one run.
        parallel: see `runtime.fit`.

    Raises:
        runtime.WorkdirError: as `open_data`; or a directory belongs to another run.
    """
    several = config.seeds > 1 or config.sweep != NO_SWEEP
    if several and workdir is None:
        raise ValueError("workdir must be given for several runs, got None")
    opened = open_data(config)
    if workdir is None or not several:
        return train(config, opened, workdir, parallel)

    def run(of: Config, directory: Path) -> dict[str, Any]:
        return train(of, opened, directory, parallel).summary

    return sweep.run_all(config, opened.train.rows, workdir, run)


def open_data(config: Config) -> data.Data:
    """The task's splits, once everything that a run needs is there.

    Raises:
        runtime.WorkdirError: something is damaged or does not fit, or all that is missing.
    """
    if missing := [*data.missing(config), *model.misfits(config)]:
        raise runtime.WorkdirError("; ".join(missing))
    try:
        tokenizer = WordPieceTokenizer.load(data.vocabulary(config), lowercase=config.lowercase)
        data.check_rows(tokenizer, model.make(config).config.vocab_size)
        return data.open_data(config, tokenizer)
    except ValueError as error:
        raise runtime.WorkdirError(str(error)) from error


def train(
    config: Config, opened: data.Data, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> runtime.FitResult:
    """One run; raises `runtime.WorkdirError` if the workdir belongs to another run or to other data."""
    config = config.resolved(opened.train.rows)
    config.validate()
    if workdir is not None:
        found = data.fingerprint(opened)
        processes.first_before_others(lambda: _keep_data(found, workdir), runtime.WorkdirError)
    tuned = model.make(config)
    task = Task(
        config.seed,
        config.batch_size,
        model.make_init(tuned),
        make_loss(config, tuned),
        config.make_optimizer(),
        accumulate=config.accumulate,
    )
    program = Program(task, parallel)
    batches = data.Batches(opened.train.features, config)
    tuning = Tuning(program, lambda step: processes.own_rows(batches(step)), config, tuned)
    measure = measures.Measure(config, tuned, opened, parallel)
    best = measures.Best(None if workdir is None else workdir / measures.BEST, tuned, opened)
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
            return measures.conclude(config, measure, best, opened, params, last, workdir)

    return runtime.loop(
        config, tuning, evaluate=evaluate, conclude=conclude, workdir=workdir, name=config.task
    )


def _keep_data(fingerprint: dict[str, Any], workdir: Path) -> None:
    """Refuses a workdir that was begun with other texts or another vocabulary."""
    path = workdir / DATA
    if path.exists():
        before = read_json(path)
        if changed := [name for name in fingerprint if before.get(name) != fingerprint[name]]:
            raise runtime.WorkdirError(
                f"workdir {workdir} was begun with other data: {', '.join(changed)} changed since; choose "
                "another workdir"
            )
    elif not workdir.exists() or not any(workdir.iterdir()):  # otherwise the loop checks whose it is
        workdir.mkdir(parents=True, exist_ok=True)
        write_json(path, fingerprint)


def make_loss(config: Config, tuned: Any) -> Callable[..., runtime.Sums]:
    """`loss(params, batch, key)` of a run: the mean over the batch's examples.

    Cross-entropy of a class; squared error of a number; of an answer half the sum of the cross-entropies of
    where it begins and ends.
    """
    task = tasks.open_task(config.task)
    drops = tuned.config.hidden_dropout_prob > 0 or tuned.config.attention_probs_dropout_prob > 0

    def loss(params, batch, key):
        out = model.apply(tuned, params, batch, dropout=key if drops else None)
        if not isinstance(task, tasks.SequenceTask):
            found = objective.span(out.start_logits, out.end_logits, batch["start"], batch["end"])
        elif task.classes:
            found = objective.cross_entropy(out.logits, batch["label"])
        else:
            weight = batch["weight"]
            found = objective.squared_error(out.logits[:, 0] * weight, batch["label"] * weight)
            found = dataclasses.replace(found, count=weight.sum())  # rows that are filled in add nothing
        metrics: dict[str, tuple[Scalar, Scalar]] = {}
        if getattr(task, "bounds", None) is None:
            metrics["accuracy"] = (found.correct, found.count)
        return runtime.Sums(found.sum, found.count, metrics)

    return loss


class Tuning(Descent):
    """Gradient descent that begins at a checkpoint, and knows which step is measured."""

    def __init__(self, program: Program, batches: Callable[[int], Any], config: Config, tuned: Any):
        """Takes what `runtime.fit` makes an engine of, and the checkpoint's config."""
        super().__init__(program, Fed(program, batches, config.steps))
        self._config, self._model = config, tuned
        self.step = 0
        """Updates behind the parameters that `unplace` returned last."""
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
        params = jax.device_put(model.begin(self._config, self._model), where.params)
        optimizer = self._program.task.optimizer
        opt_state = jax.jit(optimizer.init, out_shardings=where.opt_state)(params)
        return TrainState(jax.device_put(jax.numpy.int32(0), where.step), params, opt_state)
