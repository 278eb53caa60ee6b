"""The suite: any of its models on any of its tasks.

Axis letters: B batch; N elements; C classes.
"""

import functools
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
from experiments.reasoning.tasks import TASKS, Problems

VALIDATION, TEST = 2**31, 2**31 + 1
"""Seeds of the problems that are evaluated: the same for all models, different ones during training."""
TEST_BATCHES, TEST_BATCH = 16, 64


def make_model(config: Config) -> nn.Module:
    """Returns the config's model for its task."""
    sizes = Sizes(config.features, config.num_layers, config.num_heads, config.hidden)
    return MODELS[config.model].build(TASKS[config.task], sizes)


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


def make_evaluate(config: Config, tests: Sequence[str] | None = None) -> Callable[[Any], dict[str, float]]:
    """Returns `evaluate(params)`: accuracies by test, each the mean over the answers.

    `tests` are the names of splits. By default it is the measure of the task alone, for `runtime.fit`, on
    problems of its own, by which settings may be chosen.
    """
    task, model = TASKS[config.task], make_model(config)

    @functools.partial(jax.jit, static_argnums=1)
    def counts(params, split):
        def of_batch(key):
            batch = task.draw(key, TEST_BATCH, split)
            logits: Any = model.apply({"params": params}, batch)
            found = jnp.argmax(logits, axis=-1) == batch.targets
            answers = jax.nn.one_hot(batch.targets, task.classes, dtype=bool)
            axes = tuple(range(batch.targets.ndim))
            return jnp.sum(answers & found[..., None], axis=axes), jnp.sum(answers, axis=axes)

        key = jax.random.key(VALIDATION if tests is None else TEST)
        key = jax.random.fold_in(key, task.tests.index(split))
        return jax.lax.map(of_batch, jax.random.split(key, TEST_BATCHES))

    def evaluate(params):
        found = {}
        for split in tests or (task.measure,):
            right, count = (np.asarray(part).sum(axis=0) for part in counts(params, split))
            found[f"right/{split}"] = float(np.mean(right[count > 0] / count[count > 0]))
        return found

    return evaluate
