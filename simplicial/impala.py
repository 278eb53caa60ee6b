"""IMPALA (Espeholt et al. 2018) with the settings of Clift et al. (2020): V-trace, loss and optimiser.

`simplicial.learner` acts and learns with these functions, which know neither environment nor network.

The loss is a sum over the batch, not a mean, as in the library that the authors used. The gradient clip and
the epsilon of RMSProp depend on this.

Axis letters: B trajectories, T steps, A actions.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from kernels.softmax import MASKED
from simplicial.rollout import PolicyOutput, Trajectories, at_least_float32


@struct.dataclass
class VTrace:
    """Targets and advantages computed by V-trace; no gradient flows through either.

    Attributes:
        target: v_s, the target of each step's value.
        advantage: advantage of the action taken, multiplied by its clipped ratio.
    """

    target: Float[Array, "*B T"]
    advantage: Float[Array, "*B T"]


def v_trace(
    log_ratio: Float[Array, "*B T"],
    discount: Float[Array, "*B T"],
    reward: Float[Array, "*B T"],
    value: Float[Array, "*B T"],
    bootstrap: Float[Array, "*B"],
    *,
    valid: Bool[Array, "*B T"] | None = None,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    advantage_rho_bar: float = 1.0,
) -> VTrace:
    """Computes V-trace targets and advantages along the last axis, time.

    With the ratio w_t = pi(a_t | x_t) / mu(a_t | x_t), rho_t = min(rho_bar, w_t), c_t = min(c_bar, w_t):

        v_s = V(x_s) + sum_{t >= s} gamma^{t-s} (prod_{s <= i < t} c_i) delta_t               (equation 1)
        delta_t = rho_t (r_t + gamma V(x_{t+1}) - V(x_t))
        advantage_s = min(advantage_rho_bar, w_s) (r_s + gamma v_{s+1} - V(x_s))              (section 4.2)

    On-policy, with rho_bar and c_bar of at least 1, v_s is the n-step return. The sums follow remark 1,
    v_s = V(x_s) + delta_s + gamma c_s (v_{s+1} - V(x_{s+1})), a linear recursion, evaluated by an associative
    scan: about 2 log2(T) operations on whole arrays, where a loop would launch T small ones on an
    accelerator.

    Args:
        log_ratio: log w_t.
        discount: gamma after step t; 0 where the episode ended.
        reward: r_t.
        value: V(x_t).
        bootstrap: V(x_T), the value of the observation after the last step.
        valid: False where the successor of a step is unknown because the episode was truncated; earlier steps
            then bootstrap from its value. None means that all steps are valid.
        rho_bar: sets the fixed point: pi's own value when large, mu's value when close to 0.
        c_bar: sets how far information travels back; 0 gives one-step targets. At most `rho_bar`, as in the
            paper.
        advantage_rho_bar: clip of the ratio in the policy gradient.

    Returns:
        Targets and advantages in the promoted dtype of the arguments, at least float32. At an invalid step
        the target is the step's own value and the advantage is 0.

    Raises:
        ValueError: shapes differ, or the bars are negative or out of order.
    """
    shape = jnp.shape(log_ratio)
    if not shape or not shape[-1]:
        raise ValueError(f"log_ratio: got shape {shape}, expected a last axis of at least one step")
    arrays = {"discount": discount, "reward": reward, "value": value}
    _check_shapes("log_ratio", log_ratio, arrays if valid is None else arrays | {"valid": valid})
    if jnp.shape(bootstrap) != shape[:-1]:
        raise ValueError(
            f"bootstrap: got shape {jnp.shape(bootstrap)}, expected {shape[:-1]}, log_ratio's without time"
        )
    if not 0 <= c_bar <= rho_bar:
        raise ValueError(f"c_bar: got {c_bar}, expected a number between 0 and rho_bar = {rho_bar}")
    if not advantage_rho_bar >= 0:
        raise ValueError(f"advantage_rho_bar: got {advantage_rho_bar}, expected at least 0")

    dtype = jnp.result_type(log_ratio, discount, reward, value, bootstrap, jnp.float32)
    log_ratio, discount, reward, value, bootstrap = (
        lax.stop_gradient(jnp.asarray(array, dtype))
        for array in (log_ratio, discount, reward, value, bootstrap)
    )
    ratio = jnp.exp(log_ratio)  # may overflow to infinity, which is then clipped

    def clip(bar):
        clipped = jnp.minimum(ratio, bar)
        return clipped if valid is None else jnp.where(valid, clipped, 0)

    next_value = jnp.concatenate([value[..., 1:], bootstrap[..., None]], axis=-1)
    delta = clip(rho_bar) * (reward + discount * next_value - value)

    def compose(later, earlier):
        (later_decay, later_sum), (decay, own) = later, earlier
        return decay * later_decay, own + decay * later_sum

    factors = discount * clip(c_bar), delta
    _, error = lax.associative_scan(compose, factors, reverse=True, axis=len(shape) - 1)
    target = value + error
    next_target = jnp.concatenate([target[..., 1:], bootstrap[..., None]], axis=-1)
    return VTrace(target, clip(advantage_rho_bar) * (reward + discount * next_target - value))


@struct.dataclass
class Losses:
    """Losses and statistics, summed over the steps of each batch.

    Attributes:
        total: the objective: policy + value_cost * value - entropy_cost * entropy.
        policy: -log pi(a) times the advantage.
        value: half the squared difference between values and targets.
        entropy: entropy of the policy, in nats.
        ratio: min(1, pi(a) / mu(a)); equals `steps` while the batch is on-policy.
        steps: number of steps that were learned from.
    """

    total: Float[Array, "*batch"]
    policy: Float[Array, "*batch"]
    value: Float[Array, "*batch"]
    entropy: Float[Array, "*batch"]
    ratio: Float[Array, "*batch"]
    steps: Float[Array, "*batch"]

    def means(self) -> dict[str, tuple[Array, Array]]:
        """Returns (numerator, denominator) pairs for a record; each ratio is a mean over steps."""
        names = ("policy", "value", "entropy", "ratio")
        return {name: (getattr(self, name), self.steps) for name in names}


def loss(
    logits: Float[Array, "B T A"],
    value: Float[Array, "B T"],
    trajectories: Trajectories,
    *,
    discount: float = 0.99,
    entropy_cost: float = 0.005,
    value_cost: float = 0.5,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    advantage_rho_bar: float = 1.0,
) -> Losses:
    """Computes the loss of trajectories, summed, so that parts of a batch on several devices add up.

    The last step only bootstraps: its value stands for everything after it, and its action and reward are not
    learned from (a batch of 40 steps provides 39). The same holds for a step at which an episode was
    truncated, because its successor is unknown.

    A training loop that divides by a denominator must pass denominators that add up to 1 over all devices
    (such as each device's share of the trajectories), because the optimiser's settings assume sums.

    Args:
        logits: logits of the learning policy at every step.
        value: the learner's value of every step.
        trajectories: experience of an earlier policy.
        discount: gamma.
        entropy_cost: weight of the entropy.
        value_cost: weight of half the squared error of the values.
        rho_bar: see `v_trace`.
        c_bar: see `v_trace`.
        advantage_rho_bar: see `v_trace`.

    Raises:
        ValueError: shapes do not match, or there are fewer than two steps.
    """
    _check_batch(logits, value, trajectories)
    taught = at_least_float32(logits[:, :-1])
    taught = jnp.where(jnp.isneginf(taught), MASKED, taught)  # finite, so that 0 log 0 is 0 in the entropy
    log_policy = jax.nn.log_softmax(taught)
    log_behaviour = jax.nn.log_softmax(at_least_float32(trajectories.logits[:, :-1]))
    value = at_least_float32(value)
    seen = jax.tree.map(lambda leaf: leaf[:, :-1], trajectories)

    chosen = seen.action[..., None]
    log_probability = jnp.take_along_axis(log_policy, chosen, axis=-1)[..., 0]
    log_ratio = log_probability - jnp.take_along_axis(log_behaviour, chosen, axis=-1)[..., 0]
    valid = ~seen.truncated.astype(bool)
    trace = v_trace(
        log_ratio,
        jnp.where(seen.terminated, 0, discount).astype(value.dtype),
        seen.reward,
        value[:, :-1],
        value[:, -1],
        valid=valid,
        rho_bar=rho_bar,
        c_bar=c_bar,
        advantage_rho_bar=advantage_rho_bar,
    )
    entropy_of_step = -jnp.sum(jnp.exp(log_policy) * log_policy, axis=-1)
    policy = -jnp.sum(log_probability * trace.advantage)  # the advantage is 0 at invalid steps
    error = 0.5 * jnp.sum((trace.target - value[:, :-1]) ** 2)  # at invalid steps the target is the value
    entropy = jnp.sum(jnp.where(valid, entropy_of_step, 0))
    ratio = jnp.where(valid, jnp.minimum(jnp.exp(log_ratio), 1), 0)
    return Losses(
        total=policy + value_cost * error - entropy_cost * entropy,
        policy=policy,
        value=error,
        entropy=entropy,
        ratio=jnp.sum(ratio),
        steps=jnp.sum(valid, dtype=value.dtype),
    )


def objective(output: PolicyOutput, trajectories: Trajectories, **settings: float) -> Losses:
    """Returns `loss` of a policy's output for trajectories [B, T, ...], with its keyword arguments."""
    return loss(output.logits, output.value, trajectories, **settings)


def optimizer(
    learning_rate: float | optax.Schedule = 2e-4,
    *,
    max_norm: float = 40.0,
    decay: float = 0.99,
    epsilon: float = 0.1,
) -> optax.GradientTransformation:
    """Returns TensorFlow's RMSProp after a clip of the global gradient norm; defaults are the paper's.

    The accumulator starts at 1 and epsilon is inside the square root: g / sqrt(mean + epsilon). The gradient
    of a sum over 1248 steps has a norm far above 40 at first, so early updates are in effect normalised.
    """
    return optax.chain(
        optax.clip_by_global_norm(max_norm),
        optax.rmsprop(learning_rate, decay, epsilon, initial_scale=1.0, eps_in_sqrt=True),
    )


def _check_batch(logits: ArrayLike, value: ArrayLike, trajectories: Trajectories) -> None:
    shape = jnp.shape(trajectories.action)
    if len(shape) != 2 or shape[1] < 2:
        raise ValueError(
            f"trajectories.action: got shape {shape}, expected [B, T] with at least two steps (the last only "
            "bootstraps)"
        )
    names = ("reward", "terminated", "truncated")
    alike = {f"trajectories.{name}": getattr(trajectories, name) for name in names}
    _check_shapes("trajectories.action", trajectories.action, {**alike, "value": value})
    if jnp.ndim(logits) != 3 or jnp.shape(logits)[:2] != shape:
        raise ValueError(f"logits: got shape {jnp.shape(logits)}, expected [B, T, A] with [B, T] = {shape}")
    _check_shapes("logits", logits, {"trajectories.logits": trajectories.logits})


def _check_shapes(of: str, like: ArrayLike, arrays: Mapping[str, ArrayLike]) -> None:
    for name, array in arrays.items():
        if jnp.shape(array) != jnp.shape(like):
            raise ValueError(
                f"{name}: got shape {jnp.shape(array)}, expected {jnp.shape(like)}, that of {of}"
            )
