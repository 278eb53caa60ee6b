"""IMPALA as one compiled program: act in many environments, cut the experience into updates, learn.

    learner = Learner(policy, environment, impala.optimizer())
    state = learner.init(params, key)
    run = program(learner, iterations=10)              # one call acts and learns ten times
    state, report = run(state)

An iteration acts for 40 steps in 512 environments and learns in 16 updates of 32 trajectories each, the batch
size of Clift et al. (2020). The acting policy is up to 15 updates older than the learning one, which V-trace
corrects. Larger batches (fewer `updates`) are faster, but make fewer updates at the same step size.

Axis letters: G groups of environments, B trajectories, T steps, U updates. With several seeds, all leaves
have a further leading axis, and reports of several iterations have one for those (*runs).
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
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from simplicial import checks, impala, rollout

PyTree = Any


@struct.dataclass
class LearnerState:
    """Complete state of a run, as saved in a checkpoint.

    Leaves of `actors` are [*runs, G, environments / G, ...]; `keys` has one key per group.
    """

    params: PyTree
    opt_state: PyTree
    actors: rollout.Actors
    keys: Key[Array, "*runs G"]
    iteration: Int[Array, "*runs"]


@struct.dataclass
class Report:
    """Record of an iteration.

    Attributes:
        losses: sums over each update's batch.
        grad_norm: norm of each update's gradient before the clip.
        tally: sums over the episodes that ended.
        finite: whether all losses and, after the iteration, all parameters are finite.
    """

    losses: impala.Losses
    grad_norm: Float[Array, "*runs U"]
    tally: rollout.Tally
    finite: Bool[Array, "*runs"]


def at_once(function: Callable[[rollout.Trajectories], PyTree], batch: rollout.Trajectories) -> PyTree:
    """Returns `function(batch)`."""
    return function(batch)


@dataclasses.dataclass(frozen=True)
class Learner:
    """Learns a policy in the environments it acts in.

    Environments are divided into groups with separate keys, and groups never interact, so the number of
    devices over which the groups are spread changes nothing but the order of sums.

    Attributes:
        policy: maps parameters and observations, with any leading axes, to logits and values.
        environment: environment to act in.
        optimizer: receives the gradient of the summed loss.
        environments: number of parallel environments.
        steps: T, the number of steps per environment and iteration.
        updates: U, the number of batches into which an iteration is cut; each is used for one update.
        groups: G, a multiple of the number of devices.
        objective: maps the policy's output for trajectories [B, T, ...], and these, to summed losses whose
            `total` is minimised; `impala.objective`, with `functools.partial` for other settings.
        summed: `summed(function, batch)` returns the sum of `function` over the trajectories of a batch, by
            default `function(batch)`. Another function may add up `function(part)` over parts.
        in_turn: whether the groups of a device act one after another, not together: faster on CPUs if the
            arrays of a group fit into the cache and those of all groups do not.

    Raises:
        ValueError: a number is not positive, or the environments cannot be divided equally.
    """

    policy: rollout.Policy
    environment: rollout.Environment
    optimizer: optax.GradientTransformation
    environments: int = 512
    steps: int = 40
    updates: int = 16
    groups: int = 1
    objective: Callable[..., impala.Losses] = impala.objective
    summed: Callable[[Callable[[rollout.Trajectories], PyTree], rollout.Trajectories], PyTree] = at_once
    in_turn: bool = False

    def __post_init__(self):
        for name, least in (("environments", 1), ("steps", 2), ("updates", 1), ("groups", 1)):
            checks.whole_number(name, getattr(self, name), least)
        if self.environments % (self.groups * self.updates):
            raise ValueError(
                f"environments: got {self.environments}, expected a multiple of groups={self.groups} times "
                f"updates={self.updates}"
            )

    def init(self, params: PyTree, key: PRNGKeyArray) -> LearnerState:
        """Returns the state before the first iteration; all randomness of the run derives from `key`."""
        batch = self.environments // self.groups
        keys, for_environments = jnp.moveaxis(jax.random.split(key, (self.groups, 2)), 1, 0)
        start = functools.partial(rollout.start, self.environment, batch=batch)
        # Copies, since `program` donates the state, in which an optimizer may keep the parameters.
        params, opt_state = jax.tree.map(
            lambda leaf: leaf.copy() if isinstance(leaf, jax.Array) else leaf,
            (params, self.optimizer.init(params)),
        )
        return LearnerState(params, opt_state, jax.vmap(start)(for_environments), keys, jnp.int32(0))

    def iterate(self, state: LearnerState, axis_name: str | None = None) -> tuple[LearnerState, Report]:
        """Acts once in all environments and learns from every step.

        On several devices, `state` holds the actors and keys of this device's groups, and `axis_name` is the
        mapped axis to sum over; the report is the same on all devices.
        """
        keys, for_unroll = jnp.moveaxis(jax.vmap(jax.random.split)(state.keys), 1, 0)

        def act(group):
            actors, key = group
            return rollout.unroll(self.policy, state.params, self.environment, actors, key, self.steps)

        groups = state.actors, for_unroll
        actors, trajectories, tally = lax.map(act, groups) if self.in_turn else jax.vmap(act)(groups)
        tally = _summed(jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), tally), axis_name)

        (params, opt_state), (losses, norms) = lax.scan(
            functools.partial(self.learn, axis_name=axis_name),
            (state.params, state.opt_state),
            cut(trajectories, self.updates),
        )
        state = LearnerState(params, opt_state, actors, keys, state.iteration + 1)
        finite = jnp.all(jnp.isfinite(losses.total))
        for leaf in jax.tree.leaves(params):
            finite &= jnp.all(jnp.isfinite(leaf))
        return state, Report(losses, norms, tally, finite)

    def iterate_many(
        self, state: LearnerState, iterations: int, *, seeds: bool = False, axis_name: str | None = None
    ) -> tuple[LearnerState, Report]:
        """Calls `iterate` `iterations` times, on one run or, with `seeds`, on several runs in parallel.

        With `seeds`, the state's leaves have a leading axis. The report's leaves are [iterations, ...], or
        [seeds, iterations, ...].
        """

        def run(state):
            return lax.scan(lambda state, _: self.iterate(state, axis_name), state, length=iterations)

        return jax.vmap(run)(state) if seeds else run(state)

    def learn(
        self, carry: tuple[PyTree, PyTree], batch: rollout.Trajectories, axis_name: str | None = None
    ) -> tuple[tuple[PyTree, PyTree], tuple[impala.Losses, Float[Array, ""]]]:
        """Makes one update on trajectories [B, T, ...].

        Returns:
            The new parameters and optimizer's state; and the losses, with the gradient's norm before the
            clip.
        """
        params, opt_state = carry
        gradient, losses = _summed(self.gradient(params, batch), axis_name)
        updates, opt_state = self.optimizer.update(gradient, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), (losses, optax.tree.norm(gradient))

    def gradient(self, params: PyTree, batch: rollout.Trajectories) -> tuple[PyTree, impala.Losses]:
        """Returns the gradient of the summed loss of trajectories [B, T, ...], and the losses."""

        def total(params, part):
            output = self.policy(params, part.observation)
            losses = self.objective(output, part)
            return losses.total, losses

        return self.summed(functools.partial(jax.grad(total, has_aux=True), params), batch)


def cut(trajectories: rollout.Trajectories, updates: int) -> rollout.Trajectories:
    """Cuts leaves [G, environments / G, T, ...] into [U, B, T, ...], each with equally many of every group.

    Raises:
        ValueError: `updates` does not divide the number of environments in a group.
    """
    groups, each = trajectories.action.shape[:2]
    if each % updates:
        raise ValueError(
            f"updates: got {updates}, expected a divisor of {each}, the environments of a group for actions "
            f"of shape {trajectories.action.shape}"
        )

    def deal(leaf):
        parts = leaf.reshape(groups, updates, each // updates, *leaf.shape[2:])
        return jnp.swapaxes(parts, 0, 1).reshape(updates, -1, *leaf.shape[2:])

    return jax.tree.map(deal, trajectories)


def program(
    learner: Learner, *, iterations: int = 1, seeds: bool = False, mesh: Mesh | None = None
) -> Callable[[LearnerState], tuple[LearnerState, Report]]:
    """Compiles `Learner.iterate_many`; the returned function donates (reuses) the memory of its argument.

    With `seeds`, the state's leaves have a leading axis (use `jax.vmap(learner.init)`); a single run of small
    batches would leave an accelerator idle. Groups are spread over the one axis of `mesh`; the default is one
    device.

    Raises:
        ValueError: `iterations` is not positive, or the mesh has several axes or does not divide the groups.
    """
    checks.whole_number("iterations", iterations)
    run: Callable = functools.partial(learner.iterate_many, iterations=iterations, seeds=seeds)
    if mesh is not None:
        if len(mesh.axis_names) != 1 or learner.groups % mesh.size:
            raise ValueError(
                f"mesh: got {dict(mesh.shape)}, expected one axis whose size divides groups={learner.groups}"
            )
        run = functools.partial(run, axis_name=mesh.axis_names[0])
        specs = jax.tree.map(lambda sharding: sharding.spec, shardings(mesh, seeds=seeds))
        # Nothing differentiated crosses devices: gradients of local sums are summed explicitly.
        out_specs = specs, PartitionSpec()
        run = jax.shard_map(run, mesh=mesh, in_specs=(specs,), out_specs=out_specs, check_vma=False)
    return jax.jit(run, donate_argnums=0)


def shardings(mesh: Mesh, *, seeds: bool = False) -> LearnerState:
    """Returns shardings of a state on a mesh of one axis: groups are spread, the rest is copied.

    Each part is a prefix, one sharding for all leaves below it, as accepted by `jax.device_put` and the
    `out_shardings` of `jax.jit`.
    """
    copied = NamedSharding(mesh, PartitionSpec())
    spread = NamedSharding(mesh, PartitionSpec(*[None] * seeds, *mesh.axis_names))
    prefix = object.__new__(LearnerState)  # the constructor takes arrays
    for field in dataclasses.fields(LearnerState):
        object.__setattr__(prefix, field.name, spread if field.name in ("actors", "keys") else copied)
    return prefix


def _summed(tree: PyTree, axis_name: str | None) -> PyTree:
    return tree if axis_name is None else lax.psum(tree, axis_name)
