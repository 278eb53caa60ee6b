"""The optimizer and the schedules that FOLNet was pretrained with: LAMB (You et al. 2020), as released.

For the mean gradient g of a batch, clipped to a global norm, and each parameter p with moments m and v:

    m, v = b1 m + (1 - b1) g, b2 v + (1 - b2) g^2
    u = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay * p
    p = p - lr * |p| / |u| * u

The norms are those of a whole parameter. A parameter without decay has no trust ratio |p| / |u| either; nor
has one that is 0, or whose update is. The fused implementation that the authors used does the same; it clips
to 1 by default, while the paper's Table 8 says 0.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from experiments import runtime

SCHEDULES = ("released", "linear", "constant")
ESCAPING = ("bias", "scale")
"""Names of the parameters without decay: FOLNet's biases, and as in BERT a transformer's gains."""


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
        b1: decay rate of the first moment.
        b2: decay rate of the second.
        eps: added to the root of the second.
        weight_decay: of all but biases; with 0 nothing decays, and nothing has a trust ratio.
        clip: maximum global norm of the gradient; 0 does not clip.
    """
    parts = [optax.clip_by_global_norm(clip)] if clip else []
    parts.append(optax.scale_by_adam(b1, b2, eps))
    if weight_decay:
        parts.append(optax.add_decayed_weights(weight_decay, mask=decays))
        parts.append(optax.masked(optax.scale_by_trust_ratio(), decays))
    return optax.chain(*parts, optax.scale_by_learning_rate(schedule))


def decays(params: Any) -> Any:
    """Which of a nested dictionary of parameters decay: all but `ESCAPING`; the same tree of truth values."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: getattr(path[-1], "key", None) not in ESCAPING, params
    )


def schedule(kind: str, lr: float, steps: int, warmup: float = 0.01) -> Callable[[Any], Float[Array, ""]]:
    """The learning rate of each update, counted from 0.

    All kinds rise in a line over the first `warmup` of the steps, W; update t has (t + 1) / W of the rate, so
    that the first is not wasted. Then

    - `released` is lr * (1 - t / steps)^0.5, with a step down by half a percent at the end of the warmup;
    - `linear` (Table 8) falls from lr to 0 over the other steps;
    - `constant` stays at lr, so that runs of different length agree up to the shorter one's end.

    Args:
        kind: one of `SCHEDULES`.
        lr: the peak, or nearly so.
        steps: of the whole run.
        warmup: fraction of them.

    Raises:
        ValueError: another kind.
    """
    runtime.one_of("schedule", kind, SCHEDULES)
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
