"""The suite: any of its models on any of its tasks.

Axis letters: B batch; N elements; C classes.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from experiments import runtime
from experiments.reasoning.config import Config
from experiments.reasoning.models import MODELS, Sizes
from experiments.reasoning.tasks import TASKS, Problems, Task

VALIDATION, TEST, CURVE = 2**31, 2**31 + 1, 2**31 + 2
"""Seeds of the problems that are evaluated: by which settings are chosen, of the reported accuracies, and of
accuracies during training. Together with the run's seed they draw problems that are the same for all models,
and others for every seed, so that intervals over seeds cover the draw of the problems as well."""
TEST_BATCH, MOST_BATCHES = 64, 16
PAIRS = {VALIDATION: 51_200, TEST: 51_200, CURVE: 12_800}
"""By seed: how many pairs of elements the problems of a test have, divided by `TEST_BATCH`, at most.

Larger problems are fewer, so that evaluation takes hardly longer than training.
"""


def make_model(config: Config) -> nn.Module:
    """Returns the config's model for its task."""
    return MODELS[config.model].build(TASKS[config.task], _sizes(config))


def _sizes(config: Config) -> Sizes:
    return Sizes(config.features, config.num_layers, config.num_heads, config.hidden)


def parameters_of(config: Config) -> tuple[int, int]:
    """Returns how many parameters the config's model has, and how many of them its logits depend on."""
    params = jax.eval_shape(problem(config)["init"], jax.random.key(0))
    unread = MODELS[config.model].unread(TASKS[config.task], _sizes(config))
    sizes = {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf.size
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    }
    read = {name: size for name, size in sizes.items() if not unread or not re.search(unread, name)}
    return sum(sizes.values()), sum(read.values())


def matched(config: Config, parameters: int) -> Config:
    """Returns a copy with the hidden width that brings the model closest to a number of parameters.

    Those on which its logits do not depend do not count.

    Raises:
        ValueError: even the narrowest model has more than 2 % too many, or width does not change the number.
    """

    def count(hidden: int) -> int:
        return parameters_of(dataclasses.replace(config, hidden=hidden))[1]

    below, above = 0, 1
    while (found := count(above)) < parameters:
        if above >= parameters:  # one more unit is at least one more parameter
            raise ValueError(f"parameters: got {parameters:,}, expected a model that hidden makes larger")
        below, above = above, 2 * above
    if above == 1 and found > 1.02 * parameters:
        raise ValueError(f"parameters: got {parameters:,}, expected at least {found:,}, those of hidden=1")
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if count(middle) < parameters else (below, middle)
    best = min(range(max(below, 1), above + 1), key=lambda hidden: abs(count(hidden) - parameters))
    return dataclasses.replace(config, hidden=best)


def problem(config: Config) -> dict[str, Any]:
    """Returns the arguments `init`, `loss`, `optimizer` and `sample` of `runtime.fit` and `Task`."""
    task, model = TASKS[config.task], make_model(config)

    def init(key):
        return model.init(key, task.draw(jax.random.key(0), 1))["params"]

    def loss(params, batch: Problems, key):
        del key
        logits: Any = model.apply({"params": params}, batch)
        asked = batch.targets >= 0
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(batch.targets, 0))
        right, count = jnp.sum((jnp.argmax(logits, axis=-1) == batch.targets) & asked), jnp.sum(asked)
        return runtime.Sums(jnp.sum(losses * asked), count, {"accuracy": (right, count)})

    def sample(key, step):
        del step
        return task.draw(key, config.batch_size)

    return {"init": init, "loss": loss, "optimizer": config.make_optimizer(), "sample": sample}


@functools.cache
def num_elements(task: Task, split: str) -> int:
    """Returns how many elements a problem of a split has; of a graph, how many ordered pairs of nodes."""
    return jax.eval_shape(lambda key: task.draw(key, 1, split), jax.random.key(0)).targets.size


def num_tokens(task: Task, split: str) -> int:
    """Returns how many elements, symbols or nodes a problem of a split has."""
    return jax.eval_shape(lambda key: task.draw(key, 1, split), jax.random.key(0)).tokens.size


def num_batches(task: Task, split: str, seed: int) -> int:
    """Returns of how many batches of `TEST_BATCH` problems an accuracy is the mean."""
    return max(1, min(MOST_BATCHES, PAIRS[seed] // num_elements(task, split) ** 2))


def make_evaluate(
    config: Config, seed: int = CURVE, tests: Sequence[str] = ()
) -> Callable[[Any], dict[str, float]]:
    """Returns `evaluate(params)`: accuracies by test, each the mean over the answers.

    Args:
        config: of the model and its task.
        seed: of the problems, a key of `PAIRS`.
        tests: names of splits; by default the measure of the task alone.
    """
    task, model = TASKS[config.task], make_model(config)

    @functools.partial(jax.jit, static_argnums=2)
    def counts(params, key, split):
        def of_batch(key):
            batch = task.draw(key, TEST_BATCH, split)
            logits: Any = model.apply({"params": params}, batch)
            found = jnp.argmax(logits, axis=-1) == batch.targets
            answers = jax.nn.one_hot(batch.targets, task.classes, dtype=bool)
            axes = tuple(range(batch.targets.ndim))
            return jnp.sum(answers & found[..., None], axis=axes), jnp.sum(answers, axis=axes)

        return jax.lax.map(of_batch, jax.random.split(key, num_batches(task, split, seed)))

    def evaluate(params):
        found = {}
        for split in tests or (task.measure,):
            # An argument, so that runs of all seeds share a compiled program.
            key = jax.random.fold_in(jax.random.key(seed), config.seed)
            key = jax.random.fold_in(key, task.tests.index(split))
            right, count = (np.asarray(part).sum(axis=0) for part in counts(params, key, split))
            found[f"right/{split}"] = float(np.mean(right[count > 0] / count[count > 0]))
        return found

    return evaluate
