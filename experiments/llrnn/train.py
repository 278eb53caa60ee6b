"""Trains linear logic RNNs, memories or an LSTM on sequence tasks.

    python -m experiments.llrnn --config=quick --workdir=runs/quick

Trains the cell, then the baseline (in `baseline/` below the workdir) for the same training time. Measures
both at the task's lengths and splits, and draws error against length, held-out accuracy against training time
(if the task has a held-out split), and read and write addresses over time (if the cell has them).
"""

import dataclasses
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments import runtime
from experiments.llrnn import figures, measures
from experiments.llrnn.config import Config
from experiments.runtime import restarts
from experiments.runtime.training import Program, Task
from llrnn import tasks

BASELINE = "baseline"


def main(
    config: Config, *, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> dict[str, runtime.FitResult]:
    """Trains the cell and the baseline and draws the figures.

    Args:
        config: see `experiments.llrnn.config`.
        workdir: the run's directory; None saves and draws nothing.
        parallel: see `runtime.fit`.

    Returns:
        The result of the cell or encoder, under its name, and of the baseline, under "baseline".
    """
    began = time.monotonic()
    first = train(config.in_session(began), workdir, parallel)
    results, configs = {config.model_name: first}, {config.model_name: config}
    if not config.is_over(first.step, first.train_seconds):
        return results  # the session's time is up; running the command again continues
    if config.has_baseline:
        # Rounded up, because 0 would mean no limit.
        seconds = max(0.1, math.ceil(10 * first.train_seconds) / 10)
        configs[BASELINE] = config.for_baseline(max_seconds=seconds)
        below = None if workdir is None else Path(workdir) / BASELINE
        results[BASELINE] = train(configs[BASELINE].in_session(began), below, parallel)
    if workdir is not None and runtime.is_first() and runtime.can_draw():
        figures.draw(Path(workdir), configs, results)
    return results


def train(config: Config, workdir: Path | None, parallel: str | runtime.Layout = "jit") -> runtime.FitResult:
    """Trains one cell on one task, with the restarts of the config, without drawing figures."""
    if config.restarts == 1:
        return _fit(config, workdir, parallel)
    config.validate()
    return restarts.train(
        config,
        workdir,
        lambda config, workdir, more: _fit(config, workdir, parallel, more),
        accuracy=lambda metrics: 1 - metrics["error"],
    )


def _fit(
    config: Config,
    workdir: Path | None,
    parallel: str | runtime.Layout,
    more: Callable[[], dict[str, Any]] | None = dict,
) -> runtime.FitResult:
    """Trains one cell from one start; `more` returns results to add; if it is None, nothing is measured."""
    task = config.make_task()
    model = config.make_model(task)
    training = make_training(config)
    errors = measures.make_evaluation(task, model, config.eval_examples)
    same = config.final_examples == config.eval_examples
    final = errors if same else measures.make_evaluation(task, model, config.final_examples)

    def evaluate(params):
        return {name: counts["wrong"] / counts["symbols"] for name, counts in errors(params).items()}

    def conclude(params):
        assert more is not None
        results: dict[str, Any] = {name: measures.summarize(counts) for name, counts in final(params).items()}
        if config.score_examples and isinstance(task, tasks.StringTask):
            results["score"] = measures.score(task, model, params, config.score_examples)
        if found := measures.learned_numerals(model, task, params):
            of_tables = {name: dataclasses.asdict(table) for name, table in found.items()}
            results["program"] = json.loads(json.dumps(of_tables))  # as a finished run reads them again
        return {**results, **more()}

    return runtime.fit(
        config,
        init=training.init,
        loss=training.loss,
        sample=training.sample,
        optimizer=training.optimizer,
        evaluate=None if more is None else evaluate,
        conclude=None if more is None else conclude,
        workdir=workdir,
        parallel=parallel,
        name=f"{config.task}, {config.model_name}",
    )


def make_training(config: Config) -> Task:
    """Returns initialization, on-device sampling of random-length sequences, and the cross-entropy loss."""
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
        inputs = task.encode(batch.tokens)
        if config.entropy:
            logits, uncertainty = measures.predict_with_entropy(model, params, inputs)
        else:
            logits, uncertainty = measures.predict(model, params, inputs), None
        cross = optax.softmax_cross_entropy_with_integer_labels(logits, batch.targets)
        total, count = jnp.sum(cross * batch.mask), jnp.sum(batch.mask)
        metrics: dict[str, tuple[Any, Any]] = {"error": tasks.error_per_symbol(logits, batch)}
        if uncertainty is not None:
            metrics["entropy"] = (jnp.sum(uncertainty * batch.mask), count)
            total += config.entropy * metrics["entropy"][0]
        for name, measure in (
            ("operator_length", measures.operator_lengths),
            ("orthogonality", measures.orthogonality),
        ):
            if weight := getattr(config, name):
                metrics[name] = (measure(model, params) * count, count)
                total += weight * metrics[name][0]
        return runtime.Sums(total, count, metrics)

    return Task(config.seed, config.batch_size, init, loss, config.make_optimizer(), sample)


def abstract_state(config: Config) -> runtime.TrainState:
    """Returns shapes, dtypes and shardings of the run's state, for reading its checkpoints."""
    return Program(make_training(config), "jit").abstract_state()
