"""IMPALA as one compiled program: act in many environments, cut what came of it into updates, learn.

    learner = Learner(policy, environment, impala.optimizer())
    state = learner.init(params, key)
    run = program(learner, iterations=10)              # one call acts and learns ten times
    state, report = run(state)

An iteration acts for 40 steps in 512 environments and learns in 16 updates of 32 trajectories, the batch of
Clift et al. (2020); the policy that acted is up to 15 updates older than the one that learns, which V-trace
corrects. A larger batch (fewer `updates`) is faster but makes fewer updates at the same step size.

Axes: G groups of environments, B trajectories, T steps.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from simplicial import checks, impala, rollout

PyTree = Any


@struct.dataclass
class LearnerState:
    """All that a run carries on, and all that a checkpoint needs.

    Leaves of `actors` are [G, environments / G, ...]; `keys` has one key per group.
    """

    params: PyTree
    opt_state: PyTree
    actors: rollout.Actors
    keys: PRNGKeyArray
    iteration: Int[Array, ""]


@struct.dataclass
class Report:
    """What an iteration leaves for the record.

    Attributes:
        losses: sums of each update's batch, leaves [updates].
        grad_norm: of each update's gradient before the clip.
        tally: sums over the episodes that ended.
        finite: whether all losses and, after the iteration, all parameters are finite.
    """

    losses: impala.Losses
    grad_norm: Float[Array, "updates"]
    tally: rollout.Tally
    finite: Bool[Array, ""]


@dataclasses.dataclass(frozen=True)
class Learner:
    """A policy that learns from the environments it acts in.

    Environments are kept in groups with keys of their own, and a group never looks at another: on how many
    devices the groups lie changes nothing but the order of sums.

    Attributes:
        policy: from parameters and observations, any leading axes, to logits and values.
        environment: where it acts.
        optimizer: of the gradient of the summed loss.
        environments: how many, side by side.
        steps: how many each acts in an iteration: T.
        updates: into how many batches an iteration is cut; each is learned from once.
        groups: G, a multiple of the number of devices.
        objective: `impala.loss`, with other settings by `functools.partial`.

    Raises:
        ValueError: numbers that are not positive, or environments that cannot be dealt out equally.
    """

    policy: rollout.Policy
    environment: rollout.Environment
    optimizer: optax.GradientTransformation
    environments: int = 512
    steps: int = 40
    updates: int = 16
    groups: int = 1
    objective: Callable[..., impala.Losses] = impala.loss

    def __post_init__(self):
        for name, least in (("environments", 1), ("steps", 2), ("updates", 1), ("groups", 1)):
            checks.whole_number(name, getattr(self, name), least)
        if self.environments % (self.groups * self.updates):
            raise ValueError(
                f"environments={self.environments} must be a multiple of groups={self.groups} times "
                f"updates={self.updates}"
            )

    def init(self, params: PyTree, key: PRNGKeyArray) -> LearnerState:
        """The state before the first iteration; everything random in the run is a function of the key."""
        batch = self.environments // self.groups
        keys, for_environments = jnp.moveaxis(jax.random.split(key, (self.groups, 2)), 1, 0)
        start = functools.partial(rollout.start, self.environment, batch=batch)
        return LearnerState(
            params, self.optimizer.init(params), jax.vmap(start)(for_environments), keys, jnp.int32(0)
        )

    def iterate(self, state: LearnerState, axis_name: str | None = None) -> tuple[LearnerState, Report]:
        """Acts once in all environments and learns from every step of it.

        On several devices `state` has the actors and keys of this one's groups, and `axis_name` is the mapped
        axis to sum over; the report is the same on all.
        """
        keys, for_unroll = jnp.moveaxis(jax.vmap(jax.random.split)(state.keys), 1, 0)

        def act(actors, key):
            return rollout.unroll(self.policy, state.params, self.environment, actors, key, self.steps)

        actors, trajectories, tally = jax.vmap(act)(state.actors, for_unroll)
        tally = _summed(jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), tally), axis_name)

        def learn(carry, batch):
            params, opt_state = carry
            gradient, losses = _summed(self.gradient(params, batch), axis_name)
            updates, opt_state = self.optimizer.update(gradient, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), (losses, optax.tree.norm(gradient))

        (params, opt_state), (losses, norms) = lax.scan(
            learn, (state.params, state.opt_state), cut(trajectories, self.updates)
        )
        state = LearnerState(params, opt_state, actors, keys, state.iteration + 1)
        finite = jnp.all(jnp.isfinite(losses.total))
        for leaf in jax.tree.leaves(params):
            finite &= jnp.all(jnp.isfinite(leaf))
        return state, Report(losses, norms, tally, finite)

    def iterate_many(
        self, state: LearnerState, iterations: int, *, seeds: bool = False, axis_name: str | None = None
    ) -> tuple[LearnerState, Report]:
        """As many calls of `iterate`, on one run or on several `seeds` side by side.

        The state's leaves then have a leading axis; those of the reports are [iterations, ...], or
        [seeds, iterations, ...].
        """

        def run(state):
            return lax.scan(lambda state, _: self.iterate(state, axis_name), state, length=iterations)

        return jax.vmap(run)(state) if seeds else run(state)

    def gradient(self, params: PyTree, batch: rollout.Trajectories) -> tuple[PyTree, impala.Losses]:
        """The gradient of the summed loss of trajectories [B, T, ...], and the loss."""

        def total(params):
            output = self.policy(params, batch.observation)
            losses = self.objective(output.logits, output.value, batch)
            return losses.total, losses

        return jax.grad(total, has_aux=True)(params)


def cut(trajectories: rollout.Trajectories, updates: int) -> rollout.Trajectories:
    """Cuts leaves [G, environments / G, T, ...] into [updates, B, T, ...], as many of every group in each.

    Raises:
        ValueError: a group's environments cannot be dealt out equally.
    """
    groups, each = trajectories.action.shape[:2]
    if each % updates:
        raise ValueError(
            f"updates={updates} must divide the environments of a group, {each} where actions "
            f"have shape {trajectories.action.shape}"
        )

    def deal(leaf):
        parts = leaf.reshape(groups, updates, each // updates, *leaf.shape[2:])
        return jnp.swapaxes(parts, 0, 1).reshape(updates, -1, *leaf.shape[2:])

    return jax.tree.map(deal, trajectories)


def program(
    learner: Learner, *, iterations: int = 1, seeds: bool = False, mesh: Mesh | None = None
) -> Callable[[LearnerState], tuple[LearnerState, Report]]:
    """The compiled call of `Learner.iterate_many`; it reuses the memory of the state it is given.

    With `seeds` the state's leaves have a leading axis (of `jax.vmap(learner.init)`): small batches leave an
    accelerator idle otherwise. Groups are spread over the one axis of `mesh`; by default there is one device.

    Raises:
        ValueError: `iterations` is not positive, or the mesh has several axes or does not divide the groups.
    """
    checks.whole_number("iterations", iterations)
    run: Callable = functools.partial(learner.iterate_many, iterations=iterations, seeds=seeds)
    if mesh is not None:
        if len(mesh.axis_names) != 1 or learner.groups % mesh.size:
            raise ValueError(
                f"mesh must have one axis whose size divides groups={learner.groups}, not {dict(mesh.shape)}"
            )
        run = functools.partial(run, axis_name=mesh.axis_names[0])
        specs = jax.tree.map(lambda sharding: sharding.spec, shardings(mesh, seeds=seeds))
        # Nothing that is differentiated crosses devices: gradients of local sums are summed explicitly.
        out_specs = specs, PartitionSpec()
        run = jax.shard_map(run, mesh=mesh, in_specs=(specs,), out_specs=out_specs, check_vma=False)
    return jax.jit(run, donate_argnums=0)


def shardings(mesh: Mesh, *, seeds: bool = False) -> LearnerState:
    """How a state lies on a mesh of one axis: groups of environments are spread, the rest is copied.

    Each part is a prefix, one sharding for all leaves below it, as `jax.device_put` and `jax.jit`'s
    `out_shardings` take it.
    """
    copied = NamedSharding(mesh, PartitionSpec())
    spread: Any = NamedSharding(mesh, PartitionSpec(*[None] * seeds, *mesh.axis_names))
    parts: dict[str, Any] = dict.fromkeys(("params", "opt_state", "iteration"), copied)
    return LearnerState(actors=spread, keys=spread, **parts)


def _summed(tree: PyTree, axis_name: str | None) -> PyTree:
    return tree if axis_name is None else lax.psum(tree, axis_name)
