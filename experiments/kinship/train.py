"""Trains FOLNet and Transformers on kinship problems with short chains of facts and tests them on long ones.

    python -m experiments.kinship --config=quick --workdir=runs/kinship

This is the setting of CLUTRR (Sinha et al. 2019), as in Figure 5 of Chen (2023), with generated problems
(`folnet.kinship`). The program trains the model and then each baseline (in a subdirectory with its name) on
the same batches. It measures accuracy by length of the chain during training; at the end it draws figures and
writes each model's answer to every test problem to `predictions.jsonl`.
"""

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from experiments import runtime
from experiments.kinship import figures, measures, pairs, stories
from experiments.kinship.config import Config
from experiments.kinship.stories import StoryClassifier
from experiments.kinship.zoo import EXAMPLE
from experiments.runtime.training import Program, Task
from folnet import objective
from folnet.tasks.clutrr_graphs import Published


def main(
    config: Config, *, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> dict[str, runtime.FitResult]:
    """Trains the model and the baselines and draws figures in `workdir`; None saves and draws nothing.

    Returns:
        The results by model name, the main model first.

    Raises:
        runtime.WorkdirError: CLUTRR's files are missing or damaged, or the workdir belongs to another run.
    """
    began, results = time.monotonic(), {}
    config.validate()
    if config.data.clutrr:
        try:
            for source in (config.data.train(config.seed), *dict(config.data.tests()).values()):
                source[0]  # reads its files
        except (ValueError, OSError) as error:
            raise runtime.WorkdirError(f"data.clutrr: {error}") from error
    for name in config.models:
        below = Path(workdir) / name if workdir is not None and name != config.model else workdir
        of_model = config if name == config.model else config.for_model(name)
        results[name] = train(of_model.in_session(began), below, parallel)
        if not config.is_over(results[name].step, results[name].train_seconds):
            return results  # the session's time is up; running the command again continues
    if workdir is not None and runtime.is_first() and runtime.can_draw():
        figures.draw(config, Path(workdir), results)
    return results


def train(config: Config, workdir: Path | None, parallel: str | runtime.Layout = "jit") -> runtime.FitResult:
    """Trains `config.model` and writes its test predictions; see `main` for the arguments."""
    model, tests = config.make(config.model), measures.Tests(config, config.model)
    answer = measures.make_answer(config, model, tests, parallel)

    def conclude(params):
        answers = answer(params)
        if workdir is not None and runtime.is_first():
            measures.write_predictions(Path(workdir) / measures.PREDICTIONS, tests, answers)
        return {
            "model": config.model,
            "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
            **measures.summarize(config, tests.right(answers)),
        }

    return runtime.fit(
        config,
        **problem(config, model),
        batches=make_batches(config),
        evaluate=lambda params: measures.accuracies(config, tests.right(answer(params))),
        conclude=conclude,
        workdir=workdir,
        parallel=parallel,
        name=figures.shown(config.model),
    )


def make_batches(config: Config) -> Callable[[int], dict[str, Any]]:
    """Returns `batches(step)` for `runtime.fit`: this process's rows of a step's problems.

    With `config.pairs.ahead` they also have a random number of loops, the same in each row.
    """
    source, size = config.data.train(config.seed), config.batch_size
    read = functools.partial(config.reader(config.model, source), source)
    count = len(source) if isinstance(source, Published) else config.data.pool
    pool = read(range(count)) if count else None
    rows, first = size // jax.process_count(), jax.process_index()
    groups = stories.groups(pool["input_ids"]) if pool is not None and config.zoo.reads else []

    def problems(step: int) -> dict[str, Any]:
        if pool is None:
            start = step * size + first * rows
            return read(range(start, start + rows))
        generator = np.random.default_rng((config.seed, step))
        if not groups:
            places = generator.integers(count, size=size)
            return {name: array[places[first * rows :][:rows]] for name, array in pool.items()}
        # Stories of similar lengths, so that little is padding; each story is as likely as any other.
        width, members = groups[generator.choice(len(groups), p=[len(of) / count for _, of in groups])]
        places = generator.choice(members, size=size)[first * rows :][:rows]
        batch = {name: array[places] for name, array in pool.items()}
        return batch | {name: batch[name][:, :width] for name in ("input_ids", "mentions")}

    def batches(step: int) -> dict[str, Any]:
        if not config.pairs.ahead:
            return problems(step)
        drawn = np.random.default_rng((config.seed, step, 1)).integers(config.pairs.ahead + 1)
        return problems(step) | {"ahead": np.full(rows, drawn, np.int32)}

    return batches


def make_init(model: nn.Module) -> Callable[[jax.Array], Any]:
    """Returns `init(key)` for `runtime.fit`, which draws the model's initial parameters."""
    example = stories.EXAMPLE if isinstance(model, StoryClassifier) else (EXAMPLE,)
    return lambda key: model.init(key, *(jnp.zeros(of.shape, of.dtype) for of in example))["params"]


def make_loss(config: Config, model: nn.Module) -> Callable[..., runtime.Sums]:
    """Returns `loss(params, batch, key)` for `runtime.fit`: the cross-entropy of the correct relation.

    See `pairs.loss` for models that answer from the question's pair.
    """
    drops = config.sizes.hidden_dropout_prob > 0 or config.sizes.attention_probs_dropout_prob > 0

    def loss(params, batch, key):
        dropout = key if drops else None
        if config.pairs.read:
            loops = {"ahead": jnp.max(batch["ahead"])} if "ahead" in batch else {}
            return pairs.loss(
                measures.apply(model, params, batch, dropout, **loops), batch, config.pairs, **loops
            )
        logits = measures.logits(model, params, batch, dropout)
        found = objective.cross_entropy(logits, batch["labels"])
        return runtime.Sums(found.sum, found.count, {"accuracy": (found.correct, found.count)})

    return loss


def problem(config: Config, model: nn.Module) -> dict[str, Any]:
    """Returns the arguments `init`, `loss` and `optimizer` of `runtime.fit` and `Task`."""
    return {"init": make_init(model), "loss": make_loss(config, model), "optimizer": config.make_optimizer()}


def abstract_state(config: Config) -> runtime.TrainState:
    """Returns the shapes, dtypes and shardings of the run's state, for reading its checkpoints."""
    task = Task(seed=config.seed, batch_size=config.batch_size, **problem(config, config.make(config.model)))
    return Program(task, "jit").abstract_state()
