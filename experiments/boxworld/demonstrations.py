"""Learning from demonstrations: imitates the solver in the states that the learner itself visits (DAgger).

    python -m experiments.boxworld --config=demonstrations --workdir=DIR
    python -m experiments.boxworld --config=paper --config.init_from=DIR --workdir=OTHER        # then IMPALA

The agent acts as in IMPALA, and every state that it visits is labelled with all optimal actions and the
discounted return of a shortest path (`boxworld.demonstrations`). Each label is used once: boards are free, so
that old ones need not be kept. Acting, labelling and learning are one compiled program, the same `Learner` as
in IMPALA with another environment, objective and optimizer.

The policy's loss is -log of the total probability of the optimal actions. Where several are optimal (in about
half of all states) it is 0 for every policy that chooses among them, whereas the cross-entropy to the uniform
distribution over them would also ask for equal probabilities, which no measure here rewards.

Symmetries of the environment are applied to every state before it is seen: colours are drawn anew
(`boxworld.recolour`), and standard boards are reflected with probability 1/2 (`boxworld.reflect`).

Axis letters: B trajectories or environments, T steps.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Bool, Float, UInt8

from simplicial import boxworld, rollout
from simplicial.boxworld.pool import select


@struct.dataclass
class Lesson:
    """What the agent sees, and what it should make of it.

    Further targets (which box is a trap, for example) can be added here and in `loss`.

    Attributes:
        picture: the observation.
        actions: whether each action is optimal; none is if the Gem is out of reach.
        value: discounted return of a random shortest path.
    """

    picture: UInt8[Array, "*batch R W 3"]
    actions: Bool[Array, "*batch 4"]
    value: Float[Array, "*batch"]


@struct.dataclass
class Classroom:
    """State of the environments, and the lessons about it."""

    boards: rollout.BoxWorldState
    lessons: Lesson


@dataclasses.dataclass(frozen=True)
class Pupil:
    """A policy that looks at the picture of a lesson only."""

    policy: rollout.Policy

    def __call__(self, params: Any, lesson: Lesson) -> Any:
        """Returns the policy's output."""
        return self.policy(params, lesson.picture)


def environment(config: boxworld.BoxWorldConfig, discount: float) -> rollout.Environment:
    """Returns BoxWorld without end, whose observations are lessons.

    Args:
        config: the boards; its horizon is that of practice.
        discount: discount factor of the values.
    """
    plain = rollout.of_boxworld(config)

    def teach(key, boards):
        for_colours, for_reflections, for_paths = jax.random.split(key, 3)
        episodes = boards.episodes
        size = episodes.time.shape[0]
        episodes = jax.vmap(boxworld.recolour)(episodes, jax.random.split(for_colours, size))
        if boxworld.has_reflections(config):
            reflected = jax.vmap(lambda one: boxworld.reflect(one, config))(episodes)
            episodes = select(jax.random.bernoulli(for_reflections, shape=(size,)), reflected, episodes)
        boards = dataclasses.replace(boards, episodes=episodes)
        solution, value = boxworld.demonstrations(episodes, config, for_paths, discount=discount)
        return Classroom(boards, Lesson(plain.observe(boards), solution.actions, value))

    def init(key, batch):
        for_boards, for_lessons = jax.random.split(key)
        return teach(for_lessons, plain.init(for_boards, batch))

    def step(key, state, action):
        for_step, for_lessons = jax.random.split(key)
        boards, outcome = plain.step(for_step, state.boards, action)
        return teach(for_lessons, boards), outcome

    return rollout.Environment(init, lambda state: state.lessons, step, plain.kinds)


@struct.dataclass
class Losses:
    """Losses and statistics, summed over the steps of each batch; see `impala.Losses`.

    Attributes:
        total: the objective: policy + value_cost * value.
        policy: -log of the total probability of the optimal actions.
        value: half the squared difference between the value and its target.
        optimal: total probability of the optimal actions.
        steps: number of steps that were learned from: those from which the Gem can be reached.
    """

    total: Float[Array, "*batch"]
    policy: Float[Array, "*batch"]
    value: Float[Array, "*batch"]
    optimal: Float[Array, "*batch"]
    steps: Float[Array, "*batch"]

    def means(self) -> dict[str, tuple[Array, Array]]:
        """Returns (numerator, denominator) pairs for a record; each ratio is a mean over steps."""
        return {name: (getattr(self, name), self.steps) for name in ("policy", "value", "optimal")}


def loss(
    logits: Float[Array, "B T 4"],
    value: Float[Array, "B T"],
    trajectories: rollout.Trajectories,
    *,
    value_cost: float,
) -> Losses:
    """Computes the loss of imitating the lessons of trajectories, summed over their steps."""
    lesson = trajectories.observation
    is_taught = lesson.actions.any(axis=-1)
    allowed = lesson.actions | ~is_taught[..., None]  # where nothing is taught, the loss is 0 and finite
    log_probability = jax.nn.logsumexp(
        jax.nn.log_softmax(rollout.at_least_float32(logits)), axis=-1, where=allowed
    )
    weight = is_taught.astype(log_probability.dtype)
    error = rollout.at_least_float32(value) - lesson.value
    policy = -jnp.sum(weight * log_probability)
    squared = 0.5 * jnp.sum(weight * error**2)
    return Losses(
        total=policy + value_cost * squared,
        policy=policy,
        value=squared,
        optimal=jnp.sum(weight * jnp.exp(log_probability)),
        steps=jnp.sum(weight),
    )


def optimizer(lr: float, max_norm: float) -> optax.GradientTransformation:
    """Returns Adam, with a clip of the gradient of the summed loss."""
    return optax.chain(optax.clip_by_global_norm(max_norm), optax.adam(lr))
