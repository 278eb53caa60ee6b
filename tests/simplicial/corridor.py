"""A small environment that is easy to simulate by hand, and a linear policy.

A walker starts in the middle of `LENGTH` places. Action 1 is a step to the right, any other to the left. The
right end solves the episode (reward 1), the left end fails it (reward -1), and the horizon truncates it.
Episodes alternate between two kinds; rewards of the second kind are doubled.
"""

import jax
import jax.numpy as jnp
from flax import struct

from simplicial import rollout

LENGTH, HORIZON = 7, 5


@struct.dataclass
class Walkers:
    """State of B walkers in the corridor."""

    place: jnp.ndarray
    time: jnp.ndarray
    kind: jnp.ndarray


@struct.dataclass
class Output:
    """Output of the linear policy."""

    logits: jnp.ndarray
    value: jnp.ndarray


def init(key, batch):
    """Places all walkers in the middle and draws their kinds, so that environments differ."""
    kind = jax.random.randint(key, (batch,), 0, 2)
    return Walkers(jnp.full(batch, LENGTH // 2), jnp.zeros(batch, jnp.int32), kind)


def observe(state):
    """Returns one-hot places [B, LENGTH] with the kind as last entry, [B, LENGTH + 1] bytes."""
    places = jax.nn.one_hot(state.place, LENGTH)
    return jnp.concatenate([places, state.kind[:, None] == 1], axis=1).astype(jnp.uint8)


def step(key, state, action):
    """Moves all walkers by one step and restarts episodes that end."""
    del key
    place = state.place + jnp.where(action == 1, 1, -1)
    solved, failed = place == LENGTH - 1, place == 0
    terminated = solved | failed
    truncated = ~terminated & (state.time + 1 >= HORIZON)
    reward = (solved * 1.0 - failed * 1.0) * (1.0 + state.kind)
    ended = terminated | truncated
    following = Walkers(
        jnp.where(ended, LENGTH // 2, place),
        jnp.where(ended, 0, state.time + 1),
        jnp.where(ended, 1 - state.kind, state.kind),
    )
    return following, rollout.Step(reward, terminated, truncated, solved, state.kind)


ENVIRONMENT = rollout.Environment(init, observe, step, kinds=2)


def policy(params, observation):
    """Computes logits of three actions and a value, linear in observations [..., LENGTH + 1]."""
    outputs = observation.astype(params["weights"].dtype) @ params["weights"]
    return Output(outputs[..., :3], outputs[..., 3])


def weights(rng, scale=0.5):
    """Draws weights [LENGTH + 1, 3 + 1] of the linear policy."""
    return {"weights": jnp.asarray(rng.normal(size=(LENGTH + 1, 4)) * scale, jnp.float32)}
