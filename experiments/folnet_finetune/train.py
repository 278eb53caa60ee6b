r"""Fine-tunes FOLNet (Chen 2023, Section 4, Appendices B and C) on GLUE, SQuAD 2.0, FOLIO or CLUTRR.

    python -m experiments.folnet_finetune --config=rte --config.data_dir=data \
        --config.checkpoint=models/folnet --workdir=runs/rte
    python -m experiments.folnet_finetune --config=rte --config.sweep=16gb --config.seeds=5 --workdir=runs/all

The first command trains one model from a directory created by `folnet_pretrain.load` or
`folnet_pretrain.convert`, or from scratch with `--config.checkpoint=`. A run keeps its last checkpoints, the
best model (`best/`, also a directory to start from), its predictions (`predictions/`) and, on data of your
own, a page with its scores and worst errors (`page.html`). The second command tries the settings of Table 9
with five seeds each, in one directory per run, and writes medians to `sweep.md` and `sweep.json`; running it
again continues. Of finished runs, only the best setting's models are kept unless `--config.keep=all` is
given.
"""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from experiments import runtime
from experiments.folnet_finetune import card, data, kinds, measures, model, page, sweep
from experiments.folnet_finetune.config import Config
from experiments.folnet_finetune.grid import NO_SWEEP
from experiments.folnet_pretrain import vocabularies
from experiments.runtime import chunks, processes
from experiments.runtime.feeding import Fed
from experiments.runtime.fit import Descent
from experiments.runtime.training import Program, PyTree, Task, TrainState
from experiments.runtime.workdir import read_json, write_json
from folnet.tasks import own

DATA = ".data.json"
"""File name of the data's fingerprint; hidden, so that a workdir with nothing else counts as empty."""


def main(
    config: Config, *, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> runtime.FitResult | sweep.Report:
    """Trains a model, or one for each setting and seed.

    Args:
        config: see `experiments.folnet_finetune.config`.
        workdir: directory of the run, or of all runs; None saves nothing (for a single run only).
        parallel: see `runtime.fit`.

    Raises:
        ValueError: several runs have no workdir.
        runtime.WorkdirError: the data or the checkpoint is unsuitable (see `open_data`), or a directory
            belongs to another run.
    """
    several = config.seeds > 1 or config.sweep != NO_SWEEP
    if several and workdir is None:
        raise ValueError("workdir: got None, expected a directory for several runs")
    opened = open_data(config)
    if workdir is None or not several:
        return train(config, opened, workdir, parallel)

    def run(of: Config, directory: Path) -> dict[str, Any]:
        return train(of, opened, directory, parallel).summary

    return sweep.run_all(config, opened.train.rows, workdir, run)


def open_data(config: Config) -> data.Data:
    """Returns the task's splits, after checking that everything a run needs is available.

    Raises:
        runtime.WorkdirError: something is missing (the message lists everything), damaged or does not match.
    """
    try:
        if missing := [*data.missing(config), *model.misfits(config)]:
            raise runtime.WorkdirError("; ".join(missing))
        tokenizer = data.open_tokenizer(config)
        vocabularies.check_rows(tokenizer, model.make(config).config.vocab_size)
        opened = data.open_data(config, tokenizer)
        class_weights(config, opened)  # checks that there are classes
        return opened
    except ValueError as error:
        raise runtime.WorkdirError(str(error)) from error


def train(
    config: Config, opened: data.Data, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> runtime.FitResult:
    """Executes one run; raises WorkdirError if the workdir belongs to another run or other data."""
    config = config.resolved(opened.train.rows)
    config.validate()
    if workdir is not None:
        found = data.fingerprint(opened)
        processes.first_before_others(lambda: _keep_data(found, workdir), runtime.WorkdirError)
    if isinstance(opened.task, own.OwnTask) and runtime.is_first():
        found = [f"{name} {value!r}" for name, value in kinds.reading(opened.task).items()]
        classes = f"; classes {', '.join(opened.task.classes)}" if opened.task.classes else ""
        print(f"{config.task}: {', '.join(found)}{classes}", file=sys.stderr, flush=True)
    tuned = model.make(config)
    init = model.make_init(tuned)
    config = chunks.resolved(config, workdir, init)
    task = Task(
        config.seed,
        config.batch_size,
        init,
        make_loss(config, tuned, class_weights(config, opened)),
        config.make_optimizer(),
        accumulate=config.accumulate,
    )
    program = Program(task, parallel)
    batches = data.Batches(opened.train.features, config)
    tuning = Tuning(program, lambda step: processes.own_rows(batches(step)), config, tuned)
    measure = measures.Measure(config, tuned, opened, parallel)
    best = measures.Best(
        None if workdir is None else workdir / measures.BEST,
        tuned,
        opened,
        functools.partial(card.written, config, tuned, opened),
    )
    latest: dict[int, dict[str, float]] = {}

    def evaluate(params):
        with program.measuring():
            found = measure.development(params)
        latest.clear()
        latest[tuning.step] = found
        if found:
            best.offer(tuning.step, found, params)
        return found

    def conclude(params):
        with program.measuring():
            found = latest[tuning.step] if tuning.step in latest else measure.development(params)
            last = {"step": tuning.step, **found}
            return measures.conclude(config, measure, best, opened, params, last, workdir)

    def stop(step):
        waited = 0 if best.record is None else step - best.record["step"]
        return 0 < config.patience * config.eval_every <= waited

    result = runtime.loop(
        config,
        tuning,
        evaluate=evaluate,
        conclude=conclude,
        workdir=workdir,
        name=config.task,
        stop=stop,
    )
    if workdir is not None and isinstance(opened.task, own.OwnTask) and runtime.is_first() and result.results:
        page.write(workdir, opened, result)
    return result


def _keep_data(fingerprint: dict[str, Any], workdir: Path) -> None:
    """Stores the data's fingerprint; raises WorkdirError if the workdir has a different one."""
    path = workdir / DATA
    if path.exists():
        before = read_json(path)
        if changed := [name for name in fingerprint if before.get(name) != fingerprint[name]]:
            raise runtime.WorkdirError(
                f"{workdir}: the run was started with other data ({', '.join(changed)} changed since); "
                "choose another workdir"
            )
    elif not workdir.exists() or not any(workdir.iterdir()):  # otherwise the loop checks the owner
        workdir.mkdir(parents=True, exist_ok=True)
        write_json(path, fingerprint)


def class_weights(config: Config, opened: data.Data) -> Float[np.ndarray, "C"] | None:
    """Returns what an example of each class counts in the loss; None if all count alike.

    Raises:
        ValueError: classes are to be balanced, but labels are numbers.
    """
    if not config.own.balanced:
        return None
    classes: Any = opened.task.classes
    if not classes:
        raise ValueError("own.balanced: got True, expected False without classes")
    labels = kinds.of(opened.task).labels(opened.train.examples)
    counts = np.bincount(np.asarray(labels), minlength=len(classes))
    return (counts.sum() / (len(counts) * counts)).astype(np.float32)


def make_loss(
    config: Config, tuned: Any, weights: Float[np.ndarray, "C"] | None = None
) -> Callable[..., runtime.Sums]:
    """Returns `loss(params, batch, key)`, the mean over the batch's examples.

    It is the cross-entropy of a class, the squared error of a number, or for an answer the mean of the
    cross-entropies of its start and end. With weights of classes it is the mean weighted by them.
    """
    kind = kinds.of(config.open_task())
    drops = tuned.config.hidden_dropout_prob > 0 or tuned.config.attention_probs_dropout_prob > 0

    def loss(params, batch, key):
        out = model.apply(tuned, params, batch, dropout=key if drops else None)
        return kind.sums(out, batch, weights)

    return loss


class Tuning(Descent):
    """Gradient descent that starts from a checkpoint and records the step being evaluated."""

    def __init__(self, program: Program, batches: Callable[[int], Any], config: Config, tuned: Any):
        """Sets up gradient descent for the model `tuned`, from the checkpoint in `config` if any."""
        super().__init__(program, Fed(program, batches, config.steps))
        self._config, self._model = config, tuned
        self.step = 0
        """Number of updates of the parameters that `unplace` last returned."""
        if config.checkpoint:
            self.initial = self._pretrained

    def unplace(self, state: TrainState) -> TrainState:
        """Does what `Descent.unplace` does, and records the state's step."""
        unplaced = super().unplace(state)
        self.step = int(unplaced.step)
        return unplaced

    def params_of(self, state: TrainState) -> PyTree:
        """Does what `Descent.params_of` does, and records the state's step."""
        return self.unplace(state).params

    def _pretrained(self) -> TrainState:
        """Returns the initial state; parameters are placed on devices instead of compiled in as constants."""
        where = jax.tree.map(lambda leaf: leaf.sharding, self._program.abstract_state())
        params = jax.device_put(model.begin(self._config, self._model), where.params)
        optimizer = self._program.task.optimizer
        opt_state = jax.jit(optimizer.init, out_shardings=where.opt_state)(params)
        return TrainState(jax.device_put(jax.numpy.int32(0), where.step), params, opt_state)
