r"""FOLNet and Transformers on kinship problems: trained on short chains of facts, asked about long ones.

    python -m experiments.kinship --config=quick --workdir=runs/kinship

The setting of CLUTRR (Sinha et al. 2019), which Chen (2023) has in Figure 5, on problems of our own
(`folnet.kinship`). Trains the model, then each baseline (in a directory of its name below the workdir), on
the same batches. Accuracy by the length of the chain is measured all along; at the end figures are drawn, and
each model's answer to every test problem is in `predictions.jsonl`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from experiments import runtime
from experiments.kinship import figures as kinship_figures
from experiments.kinship import measures
from experiments.kinship.config import Config
from experiments.runtime.training import Program, Task
from folnet import objective


def main(
    config: Config, *, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> dict[str, runtime.FitResult]:
    """Trains the model and the baselines and draws the figures.

    Args:
        config: see `experiments.kinship.config`.
        workdir: where the runs are kept; None keeps and draws nothing.
        parallel: see `runtime.fit`.

    Returns:
        The results by the models' names, the main one first.
    """
    config.validate()
    results = {}
    for name in config.models:
        below = workdir if workdir is None or name == config.model else Path(workdir) / name
        results[name] = train(config if name == config.model else config.for_model(name), below, parallel)
        if config.session_seconds and not is_finished(config, results[name]):
            return results  # this process's time is up; the same command goes on
    if workdir is not None and runtime.is_first() and runtime.can_draw():
        draw(config, Path(workdir), results)
    return results


def is_finished(config: Config, result: runtime.FitResult) -> bool:
    """Whether a run has come to its end, of steps or of seconds."""
    return result.step >= config.steps or 0 < config.max_seconds <= result.train_seconds


def train(config: Config, workdir: Path | None, parallel: str | runtime.Layout = "jit") -> runtime.FitResult:
    """Trains `config.model`."""
    model, tests = config.make(config.model), measures.Tests(config, config.model)
    answer = measures.make_answer(config, model, tests, parallel)

    def evaluate(params):
        return measures.accuracies(config, tests.right(answer(params)))

    def conclude(params):
        return {
            "model": config.model,
            "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
            **measures.summarize(config, tests.right(answer(params))),
        }

    result = runtime.fit(
        config,
        init=make_init(model),
        loss=make_loss(config, model),
        batches=make_batches(config),
        optimizer=config.make_optimizer(),
        evaluate=evaluate,
        conclude=conclude,
        workdir=workdir,
        parallel=parallel,
        name=kinship_figures.shown(config.model),
    )
    if workdir is not None and runtime.is_first():
        path = Path(workdir) / measures.PREDICTIONS
        if not path.exists():
            measures.write_predictions(path, tests, answer(result.params))
    return result


def make_batches(config: Config) -> Callable[[int], dict[str, Any]]:
    """`batches(step)` of `runtime.fit`: this process's rows of the problems of a step."""
    source = config.data.train(config.seed)
    read = config.reader(config.model, source)
    rows, first = config.batch_size // jax.process_count(), jax.process_index()
    if not config.data.pool:

        def batches(step: int) -> dict[str, Any]:
            start = step * config.batch_size + first * rows
            return read(source, range(start, start + rows))

        return batches
    pool = read(source, range(config.data.pool))

    def chosen(step: int) -> dict[str, Any]:
        generator = np.random.default_rng((config.seed, step))
        places = generator.integers(config.data.pool, size=config.batch_size)[first * rows :][:rows]
        return {name: array[places] for name, array in pool.items()}

    return chosen


def make_init(model: nn.Module) -> Callable[[jax.Array], Any]:
    """`init(key)` of `runtime.fit`."""

    def init(key):
        return model.init(key, jnp.zeros((1, 2), jnp.int32))["params"]

    return init


def make_loss(config: Config, model: nn.Module) -> Callable[..., runtime.Sums]:
    """`loss(params, batch, key)` of `runtime.fit`: cross-entropy of the relation asked for."""
    drops = config.sizes.hidden_dropout_prob > 0 or config.sizes.attention_probs_dropout_prob > 0

    def loss(params, batch, key):
        logits = measures.logits(model, params, batch, dropout=key if drops else None)
        found = objective.cross_entropy(logits, batch["labels"])
        return runtime.Sums(found.sum, found.count, {"accuracy": (found.correct, found.count)})

    return loss


def abstract_state(config: Config) -> runtime.TrainState:
    """Shapes, types and shardings of the run's state, for reading its checkpoints."""
    model = config.make(config.model)
    task = Task(
        config.seed, config.batch_size, make_init(model), make_loss(config, model), config.make_optimizer()
    )
    return Program(task, "jit").abstract_state()


def draw(config: Config, workdir: Path, results: dict[str, runtime.FitResult]) -> dict[str, Path]:
    """Draws Figure 5 and the metric against steps and seconds, of one run of each model.

    Returns:
        The files written, by the name of the figure.
    """
    lines = {
        name: [measures.line(config, result, workdir if name == config.model else workdir / name)]
        for name, result in results.items()
    }
    figures = kinship_figures.of_lines(lines)
    return {name: runtime.plots.save(figure, workdir / f"{name}.png") for name, figure in figures.items()}
