"""FOLNet's optimizer and learning-rate schedules for pretraining: LAMB (You et al. 2020), as released.

For the mean gradient g of a batch, clipped to a global norm, and each parameter p with moments m and v:

    m, v = b1 m + (1 - b1) g, b2 v + (1 - b2) g^2
    u = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay * p
    p = p - lr * |p| / |u| * u

Norms are taken over a whole parameter. The trust ratio |p| / |u| is left out for parameters without decay,
and if p or u is 0. The fused implementation used by the authors does the same; it clips to 1 by default,
while Table 8 of the paper says 0.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from experiments import runtime

ScheduleName = Literal["released", "linear", "constant"]
SCHEDULES: tuple[ScheduleName, ...] = get_args(ScheduleName)
ESCAPING = ("bias", "scale")
"""Names of parameters without decay: biases, and (as in BERT) the scales of a Transformer's LayerNorms."""


def lamb(
    schedule: optax.Schedule,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    weight_decay: float = 0.01,
    clip: float = 1.0,
) -> optax.GradientTransformation:
    """Returns LAMB with decoupled decay, bias correction, and trust ratios only where decay applies.

    Args:
        schedule: the learning rate of each update, counted from 0.
        b1: decay rate of the first moment.
        b2: decay rate of the second moment.
        eps: added to the square root of the second moment.
        weight_decay: decay of all parameters but `ESCAPING`; 0 also disables trust ratios.
        clip: maximum global norm of the gradient; 0 disables clipping.
    """
    parts = [optax.clip_by_global_norm(clip)] if clip else []
    parts.append(optax.scale_by_adam(b1, b2, eps))
    if weight_decay:
        parts.append(optax.add_decayed_weights(weight_decay, mask=decays))
        parts.append(optax.masked(optax.scale_by_trust_ratio(), decays))
    return optax.chain(*parts, optax.scale_by_learning_rate(schedule))


def decays(params: Any) -> Any:
    """Returns a tree of booleans, True for parameters that decay: all but those named in `ESCAPING`."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: getattr(path[-1], "key", None) not in ESCAPING, params
    )


def check(config: Any) -> None:
    """Raises ValueError unless a config's `lr`, `warmup` and arguments of the optimizer are in range."""
    for name in ("lr", "eps", "weight_decay", "clip"):
        runtime.at_least(name, getattr(config, name), 0)
    for name in ("b1", "b2"):
        if not 0 <= getattr(config, name) < 1:
            raise ValueError(f"{name}: got {getattr(config, name)}, expected 0 <= {name} < 1")
    if not 0 <= config.warmup <= 1:
        raise ValueError(f"warmup: got {config.warmup}, expected a fraction from 0 to 1")


def schedule(kind: ScheduleName, lr: float, steps: int, warmup: float) -> Callable[[Any], Float[Array, ""]]:
    """Returns the learning rate as a function of the update's number t, counted from 0.

    Every schedule increases linearly over the first W = warmup * steps updates; update t has the rate
    lr * (t + 1) / W, so that the first one has an effect. After that

    - `released` is lr * (1 - t / steps)^0.5, which drops by half a percent at the end of the warmup;
    - `linear` (Table 8) decreases from lr to 0 over the remaining steps;
    - `constant` stays at lr, so that runs of different lengths agree up to the end of the shorter one.

    Args:
        kind: one of `SCHEDULES`.
        lr: the peak learning rate.
        steps: number of updates in the whole run.
        warmup: fraction of the steps.

    Raises:
        ValueError: `kind` is not one of `SCHEDULES`.
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
