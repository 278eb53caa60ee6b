"""Sequence tasks with the linear logic RNN, its memories, or an LSTM.

    python -m experiments.llrnn --config=quick --workdir=runs/quick

Trains the cell, then the baseline (in `baseline/` below the workdir) for as many seconds, measures both at
the task's lengths and splits, and draws: error against length, held-out accuracy against training time where
the task holds something out, and read and write addresses over time where the cell has any.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from experiments import runtime
from experiments.llrnn import figures as llrnn_figures
from experiments.llrnn.config import Config
from experiments.runtime.training import Program, Task
from llrnn import model as models
from llrnn import tasks

BASELINE = "baseline"
EVALUATION_SEED = 2**31 - 1  # apart from every training seed in use: the same sequences for every run


def main(
    config: Config, *, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> dict[str, runtime.FitResult]:
    """Trains the cell and the baseline and draws the figures.

    Args:
        config: see `experiments.llrnn.config`.
        workdir: where the run is kept; None keeps and draws nothing.
        parallel: see `runtime.fit`.

    Returns:
        The result of the cell, under its name, and of the baseline, under "baseline".
    """
    results = {config.cell.name: train(config, workdir, parallel)}
    configs = {config.cell.name: config}
    if config.has_baseline:
        seconds = results[config.cell.name].train_seconds
        # Rounded up: 0 would be no limit.
        configs[BASELINE] = config.for_baseline(max_seconds=max(0.1, math.ceil(10 * seconds) / 10))
        below = None if workdir is None else Path(workdir) / BASELINE
        results[BASELINE] = train(configs[BASELINE], below, parallel)
    if workdir is not None and runtime.is_first():
        llrnn_figures.draw(Path(workdir), configs, results)
    return results


def train(config: Config, workdir: Path | None, parallel: str | runtime.Layout = "jit") -> runtime.FitResult:
    """Trains one cell on one task."""
    task = config.make_task()
    model = config.make_model(task)
    training = make_training(config)
    errors = make_evaluation(task, model, config.eval_examples)
    same = config.final_examples == config.eval_examples
    final = errors if same else make_evaluation(task, model, config.final_examples)

    def evaluate(params):
        return {
            name: counts["wrong"] / counts["symbols"]
            for name, counts in errors(params).items()
            if counts["symbols"]  # a few short sequences may hold nothing that a split scores
        }

    def conclude(params):
        results: dict[str, Any] = {
            name: summarize(counts) for name, counts in final(params).items() if counts["symbols"]
        }
        if config.score_examples and isinstance(task, tasks.StringTask):
            results["score"] = score(task, model, params, config.score_examples)
        return results

    return runtime.fit(
        config,
        init=training.init,
        loss=training.loss,
        sample=training.sample,
        optimizer=training.optimizer,
        evaluate=evaluate,
        conclude=conclude,
        workdir=workdir,
        parallel=parallel,
        name=f"{config.task}, {config.cell.name}",
    )


def make_training(config: Config) -> Task:
    """What is trained: parameters, sequences of random length drawn on the device, their cross-entropy."""
    task = config.make_task()
    model = config.make_model(task)
    shortest, longest = task.train_lengths

    def init(key):
        return model.init(key, jnp.zeros((1, task.steps(shortest), sum(task.fields))))["params"]

    def sample(key, step):
        length_key, key = jax.random.split(key)
        length = jax.random.randint(length_key, (), shortest, longest + 1)
        return task.sample(key, config.batch_size, length, max_length=longest)

    def loss(params, batch, key):
        logits = predict(model, params, task.encode(batch.tokens))
        entropy = optax.softmax_cross_entropy_with_integer_labels(logits, batch.targets)
        count = jnp.sum(batch.mask)
        return runtime.Sums(
            jnp.sum(entropy * batch.mask), count, {"error": tasks.error_per_symbol(logits, batch)}
        )

    return Task(config.seed, config.batch_size, init, loss, config.make_optimizer(), sample)


def abstract_state(config: Config) -> runtime.TrainState:
    """Shapes, types and shardings of the run's state, for reading its checkpoints."""
    return Program(make_training(config), "jit").abstract_state()


def predict(
    model: models.RecurrentModel, params: Any, inputs: Float[Array, "B T I"]
) -> Float[Array, "B T O"]:
    """The model's logits."""
    return cast(models.RecurrentOutput, model.apply({"params": params}, inputs)).logits


def make_evaluation(task: tasks.Task, model: models.RecurrentModel, examples: int):
    """A function from parameters to `{"SPLIT/error_LENGTH": counts}` at the task's lengths and splits.

    Trained lengths and pairs are measured at the longest trained length, on fresh sequences.
    """
    lengths = sorted({task.train_lengths[1], *task.test_lengths})

    # One compiled program for all lengths: shapes have room for the longest.
    @functools.partial(jax.jit, static_argnames="split")
    def count(params, split):
        def at(length):
            key = jax.random.fold_in(jax.random.key(EVALUATION_SEED), length)
            batch = task.sample(key, examples, length, max_length=lengths[-1], split=split)
            logits = predict(model, params, task.encode(batch.tokens))
            wrong = batch.mask & (jnp.argmax(logits, axis=-1) != batch.targets)
            return {
                "wrong": jnp.sum(wrong),
                "symbols": jnp.sum(batch.mask),
                "sequences_wrong": jnp.sum(jnp.any(wrong, axis=1)),
                "sequences": jnp.sum(jnp.any(batch.mask, axis=1)),
            }

        return jax.lax.map(at, jnp.asarray(lengths))

    def evaluation(params) -> dict[str, dict[str, int]]:
        found = {}
        for split in task.splits:
            counts = jax.device_get(count(params, split))
            for index, length in enumerate(lengths):
                found[f"{split}/error_{length}"] = {name: int(row[index]) for name, row in counts.items()}
        return found

    return evaluation


def summarize(counts: Mapping[str, int]) -> dict[str, Any]:
    """Error per symbol, and the share of sequences without any error with its Wilson interval."""
    right = counts["sequences"] - counts["sequences_wrong"]
    low, high = runtime.intervals.wilson_interval(right, counts["sequences"])
    return {
        "error": counts["wrong"] / counts["symbols"],
        "symbols": counts["symbols"],
        "sequences_right": right / counts["sequences"],
        "sequences_right_interval": [low, high],
        "sequences": counts["sequences"],
    }


def score(
    task: tasks.StringTask,
    model: models.RecurrentModel,
    params: Any,
    examples: int,
    lengths: Sequence[int] = tasks.SCORED_LENGTHS,
) -> float:
    """The score of Deletang et al.: accuracy averaged over the lengths 41 to 500."""
    longest = max(lengths)

    @jax.jit
    def right(params, length):
        key = jax.random.fold_in(jax.random.key(EVALUATION_SEED), length)
        batch = task.sample(key, examples, length, max_length=longest)
        return tasks.accuracy(predict(model, params, task.encode(batch.tokens)), batch)

    accuracies = {}
    for length in lengths:
        hits, symbols = right(params, jnp.int32(length))
        accuracies[length] = int(hits) / int(symbols)
    return tasks.deletang_score(accuracies, lengths=lengths)
