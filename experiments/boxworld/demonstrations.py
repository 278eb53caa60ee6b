"""Learning from demonstrations: imitates the solver in the states that the learner itself visits (DAgger).

    python -m experiments.boxworld --config=demonstrations --workdir=DIR
    python -m experiments.boxworld --config=demonstrations_long --workdir=DIR              # from four starts
    python -m experiments.boxworld --config=demonstrations_then_rewards --workdir=DIR       # then IMPALA
    python -m experiments.boxworld --config=paper --config.init_from=DIR --workdir=OTHER   # from a run

The agent acts as in IMPALA, and every state that it visits is labelled with all optimal actions and with the
discounted return of a shortest path (`boxworld.demonstrations`). Each label is used once: boards are free, so
that old ones need not be kept. Acting, labelling and learning are one compiled program, the same `Learner` as
in IMPALA with another environment, objective and optimizer.

The policy's loss is -log of the total probability of the optimal actions. Where several are optimal (in about
half of all states) it is 0 for every policy that chooses among them, whereas the cross-entropy to the uniform
distribution over them would also ask for equal probabilities, which no measure here rewards.

Few states decide whether a bridge is opened, so that actions alone teach little about bridges. With
`marks_cost`, two logits of every entity of the last block also say what a shortest path takes or opens first,
and which boxes are traps, in every state. They share the agent's parameters up to the last block and do not
act; only training has them.

The symmetries of the environment are applied to every state before it is seen: colours are drawn anew
(`boxworld.recolour`), and standard boards are reflected with probability 1/2 (`boxworld.reflect`). Boxes and
keys also exchange places (`boxworld.rearrange`), which keeps the puzzle, but not the way that was walked:
what follows one another in practice are states of the game, and not an episode of it. Consecutive states
would otherwise be lessons about the same board. The fractions `solved` and the like of training are those of
practice; evaluations play the game as it is.

With `expert_share`, the solver takes some of the steps: never in the first half of a group's environments,
and in the second half from one to the next more often, up to that share in the last. A beginner alone would
not get past the first boxes. Only what the agent does alone is tallied.

Axis letters: B trajectories or environments, T steps, N entities.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Bool, Float, Int, UInt8
from optax import contrib

from simplicial import Agent, apply_with_entities, boxworld, rollout
from simplicial.boxworld.pool import select

MARKS = "marks"
"""The name of the parameters that only training has."""
WARMUP = 200
"""Number of updates in which learning rates rise from 0."""


@struct.dataclass
class Lesson:
    """What the agent sees, and what it should make of it.

    Attributes:
        picture: the observation.
        actions: whether each action is optimal; none is if the Gem is out of reach or the type held out.
        value: discounted return of a random shortest path.
        target: the entity at what that path takes or opens first; -1 if the Gem is out of reach.
        traps: whether each entity is at the lock of a trap.
    """

    picture: UInt8[Array, "*batch R W 3"]
    actions: Bool[Array, "*batch 4"]
    value: Float[Array, "*batch"]
    target: Int[Array, "*batch"]
    traps: Bool[Array, "*batch N"]


@struct.dataclass
class Classroom:
    """State of the environments, and the lessons about it."""

    boards: rollout.BoxWorldState
    lessons: Lesson


@struct.dataclass
class PupilOutput:
    """The output of an agent, and what it makes of each entity.

    Attributes:
        logits: policy logits.
        value: expected discounted return.
        target: logits over entities: what a shortest path takes or opens first; None without marks.
        traps: logits over entities, and 0 for none: which are traps; None without marks.
    """

    logits: Float[Array, "*batch 4"]
    value: Float[Array, "*batch"]
    target: Float[Array, "*batch N"] | None = None
    traps: Float[Array, "*batch N"] | None = None


class Marks(nn.Module):
    """Two logits of every entity: `PupilOutput.target` and `PupilOutput.traps`."""

    hidden: int = 64

    @nn.compact
    def __call__(self, entities: Float[Array, "*batch N V"]) -> Float[Array, "*batch N 2"]:
        """Returns the logits."""
        hidden = nn.relu(nn.Dense(self.hidden, name="hidden")(entities))
        return nn.Dense(2, name="logits")(hidden)


@dataclasses.dataclass(frozen=True)
class Pupil:
    """An agent as a policy that looks at the picture of a lesson only.

    Attributes:
        agent: the agent.
        marks: whether its parameters have `MARKS`.
    """

    agent: Agent
    marks: bool

    def __call__(self, params: Any, lesson: Lesson) -> PupilOutput:
        """Returns the agent's output, and its marks if it has any."""
        output, entities = apply_with_entities(self.agent, {"params": params}, lesson.picture)
        if not self.marks:
            return PupilOutput(output.logits, output.value)
        marks: Any = Marks().apply({"params": params[MARKS]}, rollout.at_least_float32(entities))
        return PupilOutput(output.logits, output.value, marks[..., 0], marks[..., 1])


def environment(
    config: boxworld.BoxWorldConfig,
    discount: float,
    expert_share: float = 0.0,
    held_out: Sequence[tuple[int, int, int]] = (),
    *,
    exchange_places: bool = True,
) -> rollout.Environment:
    """Returns BoxWorld without end, whose observations are lessons.

    Args:
        config: the boards; its horizon is that of practice.
        discount: discount factor of the values.
        expert_share: share of the steps in the last environment that the solver takes; see above.
        held_out: types (L, s, t) of puzzles about which nothing is taught.
        exchange_places: whether boxes and keys exchange places before every state is seen.
    """
    plain = rollout.of_boxworld(config)
    width = config.cols - 1

    def teach(key, boards):
        for_colours, for_slots, for_reflections, for_paths = jax.random.split(key, 4)
        episodes = boards.episodes
        size = episodes.time.shape[0]
        episodes = jax.vmap(boxworld.recolour)(episodes, jax.random.split(for_colours, size))
        if exchange_places:
            places = jax.random.split(for_slots, size)
            episodes = jax.vmap(boxworld.rearrange, (0, 0, None))(episodes, places, config)
        if boxworld.has_reflections(config):
            reflected = jax.vmap(lambda one: boxworld.reflect(one, config))(episodes)
            episodes = select(jax.random.bernoulli(for_reflections, shape=(size,)), reflected, episodes)
        boards = dataclasses.replace(boards, episodes=episodes)
        solution, path = boxworld.demonstrations(episodes, config, for_paths, discount=discount)
        others = np.asarray(held_out, np.int8).reshape(-1, 3)
        is_held_out = (episodes.puzzle[:, None, :3] == others[None]).all(axis=-1).any(axis=-1)
        # Entities (x - 1) + (C - 1)(y - 1) are around the places (x, y) of all boxes.
        traps = episodes.traps.astype(jnp.int32)
        traps = jnp.where(traps[..., 0] >= 0, traps[..., 0] - 1 + width * (traps[..., 1] - 1), -1)
        entities = jnp.arange(width * (config.rows - 2))
        target = jnp.where(
            path.target[:, 0] >= 0, path.target[:, 0] - 1 + width * (path.target[:, 1] - 1), -1
        )
        lessons = Lesson(
            picture=plain.observe(boards),
            actions=solution.actions & ~is_held_out[:, None],
            value=path.value,
            target=target,
            traps=(traps[..., None] == entities[None, None]).any(axis=1),
        )
        return Classroom(boards, lessons)

    def init(key, batch):
        for_boards, for_lessons = jax.random.split(key)
        return teach(for_lessons, plain.init(for_boards, batch))

    def step(key, state, action):
        for_step, for_lessons, for_shares, for_actions = jax.random.split(key, 4)
        best = state.lessons.actions
        share = expert_share * jnp.clip(jnp.linspace(-1, 1, action.shape[0]), 0)
        takes_over = (jax.random.uniform(for_shares, share.shape) < share) & best.any(axis=-1)
        expert = jnp.argmax(jnp.where(best, jax.random.uniform(for_actions, best.shape), -1), axis=-1)
        action = jnp.where(takes_over, expert.astype(action.dtype), action)
        boards, outcome = plain.step(for_step, state.boards, action)
        alone = dataclasses.replace(outcome, kind=jnp.where(share > 0, -1, outcome.kind))
        return teach(for_lessons, boards), alone

    return rollout.Environment(init, lambda state: state.lessons, step, plain.kinds)


@struct.dataclass
class Losses:
    """Losses and statistics, summed over the steps of each batch; see `impala.Losses`.

    Attributes:
        total: the objective: policy + value_cost * value + marks_cost * (target + traps).
        policy: -log of the total probability of the optimal actions.
        value: half the squared difference between the value and its target.
        optimal: total probability of the optimal actions.
        steps: number of steps that were learned from: those from which the Gem can be reached.
        target: -log of the probability of the lesson's target; None without marks, as all below.
        target_right: whether it is the most probable one.
        traps: cross-entropy to the uniform distribution over the traps, or to none if none is left.
        trap_right: whether the most probable entity is a trap, where any is.
        trapped: number of steps with any trap.
    """

    total: Float[Array, "*batch"]
    policy: Float[Array, "*batch"]
    value: Float[Array, "*batch"]
    optimal: Float[Array, "*batch"]
    steps: Float[Array, "*batch"]
    target: Float[Array, "*batch"] | None = None
    target_right: Float[Array, "*batch"] | None = None
    traps: Float[Array, "*batch"] | None = None
    trap_right: Float[Array, "*batch"] | None = None
    trapped: Float[Array, "*batch"] | None = None

    def means(self) -> dict[str, tuple[Array, Array]]:
        """Returns (numerator, denominator) pairs for a record; each ratio is a mean over steps."""
        names = ("policy", "value", "optimal", "target", "target_right", "traps")
        found: dict[str, tuple[Any, Any]] = {name: (getattr(self, name), self.steps) for name in names}
        found["trap_right"] = self.trap_right, self.trapped
        return {name: pair for name, pair in found.items() if pair[0] is not None}


def loss(
    output: PupilOutput, trajectories: rollout.Trajectories, *, value_cost: float, marks_cost: float = 0.0
) -> Losses:
    """Computes the loss of imitating the lessons of trajectories, summed over their steps."""
    lesson = trajectories.observation
    is_taught = lesson.actions.any(axis=-1)
    allowed = lesson.actions | ~is_taught[..., None]  # where nothing is taught, the loss is 0 and finite
    log_probability = jax.nn.logsumexp(
        jax.nn.log_softmax(rollout.at_least_float32(output.logits)), axis=-1, where=allowed
    )
    weight = is_taught.astype(log_probability.dtype)
    error = rollout.at_least_float32(output.value) - lesson.value
    policy = -jnp.sum(weight * log_probability)
    squared = 0.5 * jnp.sum(weight * error**2)
    found = Losses(
        total=policy + value_cost * squared,
        policy=policy,
        value=squared,
        optimal=jnp.sum(weight * jnp.exp(log_probability)),
        steps=jnp.sum(weight),
    )
    if output.target is None or output.traps is None:
        return found

    log_target = jax.nn.log_softmax(output.target)
    is_target = lesson.target[..., None] == jnp.arange(log_target.shape[-1])[(None,) * lesson.target.ndim]
    log_traps = jax.nn.log_softmax(jnp.concatenate([output.traps, jnp.zeros_like(output.traps[..., :1])], -1))
    any_trap = lesson.traps.any(axis=-1, keepdims=True)
    wanted = jnp.concatenate([lesson.traps, ~any_trap], axis=-1).astype(log_traps.dtype)
    wanted = wanted / wanted.sum(axis=-1, keepdims=True)
    target = -jnp.sum(jnp.where(is_target, weight[..., None] * log_target, 0))
    traps = -jnp.sum(weight[..., None] * wanted * log_traps)
    best = jnp.argmax(output.traps, axis=-1)[..., None]
    trap_right = jnp.take_along_axis(lesson.traps, best, axis=-1)[..., 0]
    return dataclasses.replace(
        found,
        total=found.total + marks_cost * (target + traps),
        target=target,
        target_right=jnp.sum(weight * (jnp.argmax(log_target, axis=-1) == lesson.target)),
        traps=traps,
        trap_right=jnp.sum(weight * trap_right),
        trapped=jnp.sum(weight * any_trap[..., 0]),
    )


def optimizer(
    lr: float, max_norm: float, *, matrix_lr: float = 0.0, decay_updates: int = 0
) -> optax.GradientTransformation:
    """Returns Adam after a clip of the summed loss's gradient; or Muon for matrices, and Adam for the rest.

    Kernels of convolutions are matrices, too. The tensor B of 2-simplicial attention is none.

    Args:
        lr: Adam's learning rate, after `WARMUP` updates.
        max_norm: largest norm of the gradient.
        matrix_lr: Muon's learning rate; 0 for Adam alone.
        decay_updates: number of updates after which both have fallen along a cosine to a hundredth; 0 for
            constant ones.
    """
    warmup = optax.linear_schedule(0.0, 1.0, WARMUP)

    def schedule(rate):
        falling = optax.cosine_decay_schedule(rate, max(1, decay_updates), 0.01)
        return lambda count: warmup(count) * (falling(count) if decay_updates else rate)

    clip = optax.clip_by_global_norm(max_norm)
    if not matrix_lr:
        return optax.chain(clip, optax.adam(schedule(lr)))

    def dimensions(params):
        def of(path, leaf):
            if leaf.ndim < 2 or path[-1].key == "bilinear":
                return None
            *inputs, outputs = range(leaf.ndim)
            return contrib.MuonDimensionNumbers(tuple(inputs), (outputs,))

        return jax.tree_util.tree_map_with_path(of, params)

    muon = contrib.muon(
        schedule(matrix_lr), adam_learning_rate=schedule(lr), muon_weight_dimension_numbers=dimensions
    )
    return optax.chain(clip, muon)
