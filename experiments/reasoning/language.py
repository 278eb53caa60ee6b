"""Language modelling: the loss of bytes, and bits per byte of held-out text."""

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from experiments import runtime
from experiments.reasoning import text
from experiments.reasoning.config import Config


def problem(config: Config) -> dict[str, Any]:
    """Returns the arguments `init`, `loss`, `optimizer` and `sample` of `runtime.fit` and `Task`."""
    model = config.make_model()
    learned, _ = text.parts()

    def init(key):
        return model.init(key, jnp.zeros((1, 2), jnp.int32))["params"]

    def loss(params, batch, key):
        del key
        losses = nats(model, params, batch["bytes"])
        return runtime.Sums(jnp.sum(losses), losses.size)

    def sample(key, step):
        del step
        return {"bytes": text.draw(key, learned, config.batch_size, config.length)}

    return {"init": init, "loss": loss, "optimizer": config.make_optimizer(), "sample": sample}


def nats(model: Any, params: Any, tokens: Array) -> Array:
    """Returns the loss of each byte but the first of each row, given those before it."""
    logits = cast(Array, model.apply({"params": params}, tokens[:, :-1]))
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])


def make_evaluate(config: Config) -> Callable[[Any], dict[str, float]]:
    """Returns `evaluate(params)` for `runtime.fit`: bits per byte of the held-out text."""
    model, (_, held_out) = config.make_model(), text.parts()
    rows = text.windows(held_out, config.length)
    batches = np.array_split(rows, max(1, len(rows) // config.batch_size))
    total = jax.jit(lambda params, tokens: jnp.sum(nats(model, params, tokens)))

    def evaluate(params):
        loss = sum(float(total(params, batch)) for batch in batches)
        return {"bits_per_byte": loss / np.log(2) / rows[:, 1:].size}

    return evaluate
