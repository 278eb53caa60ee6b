"""The optimizer and the schedules that FOLNet was pretrained with: LAMB (You et al. 2020), as released.

For the mean gradient g of a batch, clipped to a global norm, and each parameter p with moments m and v:

    m, v = b1 m + (1 - b1) g, b2 v + (1 - b2) g^2
    u = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay * p
    p = p - lr * |p| / |u| * u

The norms are those of a whole parameter. What escapes decay has no trust ratio |p| / |u| either; neither has
a parameter that is 0, or whose update is. This is what the fused implementation does which the authors used;
it clips to 1 by default, while the paper's Table 8 says 0.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

SCHEDULES = ("released", "linear", "constant")
ESCAPING = ("bias", "scale")
"""Names of the parameters that escape decay: FOLNet has biases alone, its normalisations have no parameters;
the gains of a transformer's escape as in BERT."""


def lamb(
    schedule: optax.Schedule,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    weight_decay: float = 0.01,
    clip: float = 1.0,
) -> optax.GradientTransformation:
    """LAMB with decoupled decay, bias correction, and trust ratios only where decay applies.

    Args:
        schedule: the learning rate of each update, counted from 0.
        b1: decay of the first moment.
        b2: decay of the second.
        eps: added to the root of the second.
        weight_decay: of all but biases; with 0 nothing decays, and nothing has a trust ratio.
        clip: the gradient's global norm at most; 0 leaves it.
    """
    parts = [optax.clip_by_global_norm(clip)] if clip else []
    parts.append(optax.scale_by_adam(b1, b2, eps))
    if weight_decay:
        parts.append(optax.add_decayed_weights(weight_decay, mask=decays))
        parts.append(optax.masked(optax.scale_by_trust_ratio(), decays))
    return optax.chain(*parts, optax.scale_by_learning_rate(schedule))


def decays(params: Any) -> Any:
    """Which parameters decay: all but `ESCAPING`, so the tables of the embeddings too.

    Args:
        params: nested by names.

    Returns:
        The same tree of truth values.
    """

    def decays_one(path: tuple[Any, ...], _: Any) -> bool:
        return getattr(path[-1], "key", None) not in ESCAPING

    return jax.tree_util.tree_map_with_path(decays_one, params)


def schedule(kind: str, lr: float, steps: int, warmup: float = 0.01) -> Callable[[Any], Float[Array, ""]]:
    """The learning rate of each update, counted from 0.

    All kinds rise in a line over the first `warmup` of the steps; the update t of W has (t + 1) / W of the
    rate, so that not even the first is for nothing. Then

    - `released` is lr * (1 - t / steps)^0.5, a step down by half a percent at the end of the warmup included;
    - `linear` (Table 8) falls from lr to 0 over what is left of the steps;
    - `constant` stays at lr, so that a run may be longer or shorter and is the same up to there.

    Args:
        kind: one of `SCHEDULES`.
        lr: the peak, or nearly so.
        steps: of the whole run.
        warmup: part of them.

    Raises:
        ValueError: another kind.
    """
    if kind not in SCHEDULES:
        raise ValueError(f"schedule={kind!r} is not one of {', '.join(SCHEDULES)}")
    rising = round(warmup * steps)

    def rate(count: Int[Array, ""]) -> Float[Array, ""]:
        t = jnp.asarray(count, jnp.float32)
        left = jnp.clip(1 - t / steps, 0, 1)
        after = {
            "released": jnp.sqrt(left),
            "linear": jnp.clip((steps - t) / (steps - rising), 0, 1) if rising < steps else left,
            "constant": jnp.ones_like(t),
        }[kind]
        return lr * jnp.where(t < rising, (t + 1) / max(rising, 1), after)

    return rate
