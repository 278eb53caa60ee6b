"""FOLNet's optimizer for fine-tuning: Adam without bias correction, with decoupled decay.

For the mean gradient g of a batch and each parameter p with moments m and v:

    m, v = b1 m + (1 - b1) g, b2 v + (1 - b2) g^2
    p = p - lr * (m / (sqrt(v) + eps) + decay * p)

Neither moment is divided by 1 - b^t: update t is (1 - b1^t) / sqrt(1 - b2^t) times as large as in Adam (the
first one 3.2 times), which the warmup compensates for. The authors configure their fused implementation this
way; the paper only says Adam. Biases do not decay.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from experiments.folnet_pretrain.optimizer import decays


class Moments(NamedTuple):
    """The state of `scale_by_moments`: m and v, trees like the parameters."""

    mu: Any
    nu: Any


def scale_by_moments(b1: float, b2: float, eps: float) -> optax.GradientTransformation:
    """Returns the transformation g -> m / (sqrt(v) + eps) without bias correction of the moments."""

    def init(params):
        return Moments(optax.tree.zeros_like(params), optax.tree.zeros_like(params))

    def update(updates, state, params=None):
        del params
        mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mu, updates)
        nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * jnp.square(g), state.nu, updates)
        return jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), mu, nu), Moments(mu, nu)

    return optax.GradientTransformation(init, update)


def adam(
    schedule: optax.Schedule,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    weight_decay: float = 0.01,
    clip: float = 0.0,
    bias_correction: bool = False,
) -> optax.GradientTransformation:
    """Returns Adam with decoupled decay; for the arguments see `folnet_pretrain.optimizer.lamb`.

    With `bias_correction`, moments are those of Kingma and Ba (2015). In Table 9 gradients are not clipped.
    """
    parts = [optax.clip_by_global_norm(clip)] if clip else []
    parts.append(optax.scale_by_adam(b1, b2, eps) if bias_correction else scale_by_moments(b1, b2, eps))
    if weight_decay:
        parts.append(optax.add_decayed_weights(weight_decay, mask=decays))
    return optax.chain(*parts, optax.scale_by_learning_rate(schedule))


def linear(lr: float, steps: int, warmup: float) -> Callable[[Any], Float[Array, ""]]:
    """Returns the released learning rate by update, counted from 0: a linear warmup and a linear decay to 0.

    Of n = steps updates, number t (from 1) has the rate lr * (t / n) / warmup while t / n < warmup, and
    lr * (1 - t / n) / (1 - warmup) after that. The last update has rate 0, since the authors increment the
    counter before the update.

    Args:
        lr: the peak learning rate.
        steps: number of updates in the whole run, n.
        warmup: fraction of the steps, 0 <= warmup < 1.
    """

    def rate(count: Int[Array, ""]) -> Float[Array, ""]:
        progress = (jnp.asarray(count, jnp.float32) + 1) / steps
        rising = progress / warmup if warmup else jnp.ones_like(progress)
        falling = jnp.clip((1 - progress) / (1 - warmup), 0, 1)
        return lr * jnp.where(progress < warmup, rising, falling)

    return rate
