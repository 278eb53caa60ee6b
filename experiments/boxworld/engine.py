"""Runs IMPALA as a `runtime.Engine`: places its state on all devices and turns its reports into metrics."""

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from experiments.boxworld import demonstrations
from experiments.boxworld.config import Config, type_name, type_of
from experiments.runtime import mesh as mesh_lib
from experiments.runtime import training
from simplicial import Agent, AgentOutput, boxworld, impala, rollout
from simplicial.learner import Learner, LearnerState, Report, program, shardings


@dataclasses.dataclass(frozen=True)
class Policy:
    """An agent as a policy; equal agents give equal policies, which lets JAX reuse compiled functions."""

    agent: Agent

    def __call__(self, params: Any, observation: jax.Array) -> AgentOutput:
        """Returns action logits [..., 4] and values [...]."""
        return cast(AgentOutput, self.agent.apply({"params": params}, observation))


def make_policy(config: Config) -> Policy:
    """Returns the policy of the config's agent."""
    return Policy(config.agent.make())


def _method(config: Config, board: boxworld.BoxWorldConfig) -> dict[str, Any]:
    """Returns what the learner acts in, optimizes, and how."""
    policy = make_policy(config)
    if config.learn_from == "demonstrations":
        return {
            "policy": demonstrations.Pupil(policy.agent, marks=config.marks_cost > 0),
            "environment": demonstrations.environment(
                config.practice(),
                config.discount,
                config.expert_share,
                [*map(type_of, config.held_out)],
                exchange_places=config.exchange_places,
            ),
            "optimizer": demonstrations.optimizer(
                config.lr,
                config.clip,
                matrix_lr=config.matrix_lr,
                decay_updates=config.decay_iterations * config.updates,
            ),
            "objective": functools.partial(
                demonstrations.loss, value_cost=config.value_cost, marks_cost=config.marks_cost
            ),
        }
    return {
        "policy": policy,
        "environment": rollout.of_boxworld(board),
        "optimizer": impala.optimizer(
            config.lr, max_norm=config.clip, decay=config.decay, epsilon=config.epsilon
        ),
        "objective": functools.partial(
            impala.objective,
            discount=config.discount,
            entropy_cost=config.entropy_cost,
            value_cost=config.value_cost,
        ),
    }


def _has_core_each() -> bool:
    """Returns whether devices are cores; several cores of one device share the work on all groups better."""
    return jax.default_backend() == "cpu" and jax.local_device_count() >= mesh_lib.usable_cores()


def type_label(puzzle: Sequence[int], *, can_bridge: bool = True) -> str:
    """Names a puzzle type in figures; `can_bridge` says whether the environment has bridges at all."""
    length, lock, key = puzzle
    return f"({length},{lock},{key})" if lock else f"L = {length}" + ", no bridge" * can_bridge


class Impala:
    """A `runtime.Engine` whose step is one iteration of the learner, for all seeds in parallel.

    The leaves of its state have a leading seed axis.
    """

    def __init__(self, config: Config, parallel: str | mesh_lib.Layout = "jit"):
        """Sets up the learner without compiling anything.

        Args:
            config: the run's config.
            parallel: `jit`, `shard_map` or `pmap`, over all devices.

        Raises:
            ValueError: the mode is unknown, or the groups cannot be distributed over the devices.
        """
        layout = mesh_lib.Layout.of(parallel)
        config.check_layout(layout)
        self.parallel: str = layout.mode
        self.compile_seconds = 0.0
        self.config, self.mesh = config, mesh_lib.Layout().mesh()
        parts = max(1, config.accumulate)  # 0 is not chosen yet: see `runtime.chunks.resolved`
        board = config.board.make()
        # What the tally counts: episodes of imitation are drawn from boards of their own.
        self.puzzles = boxworld.puzzles(config.practice() if config.learn_from == "demonstrations" else board)
        self.learner = Learner(
            **_method(config, board),
            environments=config.environments,
            steps=config.unroll,
            updates=config.updates,
            groups=config.groups,
            summed=functools.partial(training.summed, parts=parts),
            in_turn=parts > 1 and _has_core_each(),
        )
        self._programs: dict[int, Callable] = {}
        self._where = shardings(self.mesh, seeds=True)

        def initial(seed):
            for_params, for_run = jax.random.split(jax.random.key(seed))
            return self.learner.init(config.init_params(for_params), for_run)

        self._make = jax.jit(
            lambda: jax.vmap(initial)(config.seed + jnp.arange(config.seeds)), out_shardings=self._where
        )

    def abstract_state(self) -> LearnerState:
        """Returns the shapes, dtypes and shardings of the state, without computing it."""
        return jax.eval_shape(self._make)

    def initial(self) -> LearnerState:
        """Initializes parameters, optimizer, environments and PRNG keys of all seeds."""
        return self._make()

    def place(self, state: LearnerState) -> LearnerState:
        """Prepares a state for `advance`: under `pmap`, gives every leaf a leading device axis."""
        if self.parallel != "pmap":
            return state
        count = self.mesh.size

        def cut(leaf):  # [S, G, ...] -> [D, S, G / D, ...]
            return jnp.moveaxis(leaf.reshape(leaf.shape[0], count, -1, *leaf.shape[2:]), 1, 0)

        def copy(leaf):
            return jnp.broadcast_to(leaf, (count, *leaf.shape))

        return _on_parts(state, copy, cut, NamedSharding(self.mesh, PartitionSpec(mesh_lib.AXIS)))

    def unplace(self, state: LearnerState) -> LearnerState:
        """Undoes `place`: under `pmap`, removes the device axis."""
        if self.parallel != "pmap":
            return state

        def join(leaf):  # [D, S, G / D, ...] -> [S, G, ...]
            parts = jnp.moveaxis(leaf, 0, 1)
            return parts.reshape(parts.shape[0], -1, *parts.shape[3:])

        return _on_parts(state, lambda leaf: leaf[0], join, self._where)

    def params_of(self, state: LearnerState) -> Any:
        """Returns the parameters of a placed state; leaves have a leading seed axis."""
        return jax.tree.map(lambda leaf: leaf[0], state.params) if self.parallel == "pmap" else state.params

    def prepare(self, state: LearnerState, step: int, length: int) -> float:
        """Compiles `length` iterations and returns the seconds it took, 0 if they were compiled before."""
        if length in self._programs:
            return 0.0
        start = time.monotonic()
        self._programs[length] = self._compile(state, length)
        seconds = time.monotonic() - start
        self.compile_seconds += seconds
        return seconds

    def _compile(self, state: LearnerState, length: int) -> Callable:
        if self.parallel == "shard_map":
            run: Any = program(self.learner, iterations=length, seeds=True, mesh=self.mesh)
            return run.lower(state).compile()
        run = functools.partial(self.learner.iterate_many, iterations=length, seeds=True)
        if self.parallel == "pmap":
            run = functools.partial(run, axis_name=mesh_lib.AXIS)
            compiled = jax.pmap(run, axis_name=mesh_lib.AXIS, donate_argnums=0).lower(state).compile()

            def first_report(state):
                state, report = compiled(state)
                return state, jax.tree.map(lambda leaf: leaf[0], report)

            return first_report
        where = self._where, NamedSharding(self.mesh, PartitionSpec())
        return jax.jit(run, donate_argnums=0, out_shardings=where).lower(state).compile()

    def advance(self, state: LearnerState, step: int, length: int) -> tuple[LearnerState, Report]:
        """Runs `length` iterations; the leaves of the report are [seeds, length, ...]."""
        state, report = self._programs[length](state)
        return state, jax.device_get(report)

    def first_bad(self, trace: Report) -> tuple[int, str] | None:
        """Finds the first iteration whose loss or parameters are not finite for some seed."""
        finite = np.asarray(trace.finite)
        if finite.all():
            return None
        step = int(np.argmin(finite.all(axis=0)))
        seed = int(np.argmin(finite[:, step]))
        totals = np.asarray(trace.losses.total)[seed, step]
        bad = totals[~np.isfinite(totals)]
        what = f"the loss is {bad[0]}" if bad.size else "the loss is finite but parameters are not"
        return step, what + (f" (seed {self.config.seed + seed})" if len(finite) > 1 else "")

    def metrics(self, trace: Report, step: int) -> dict[str, float]:
        """Computes the metrics of the iterations of a report, the last of which is `step`.

        Over all episodes that ended in the interval, pooled over seeds: the fractions `solved` and
        `truncated`, the number of `episodes`, and the means `episode_length` and `return`. For each puzzle
        type the counts `type/L-s-t/solved` and `type/L-s-t/episodes`; with several seeds also `seed/N/solved`
        and `seed/N/episodes`. Over the updates: the means per step `loss`, `policy`, `value`, `entropy` and
        `ratio` (importance ratio, clipped at 1), and `grad_norm`, the mean norm before clipping. `frames` is
        the number of environment steps per seed since the start of the run.
        """
        tally = jax.tree.map(lambda leaf: np.sum(leaf, axis=1, dtype=np.float64), trace.tally)  # [S, K]
        whole = jax.tree.map(np.sum, tally)
        ended = whole.episodes or float("nan")
        steps = np.sum(trace.losses.steps, dtype=np.float64)
        shown = {
            "loss": np.sum(trace.losses.total, dtype=np.float64) / steps,
            "solved": whole.solved / ended,
            "episode_length": whole.steps / ended,
            "return": whole.returns / ended,
            "truncated": whole.truncated / ended,
        }
        for name, (over, count) in trace.losses.means().items():
            shown[name] = np.sum(over, dtype=np.float64) / (np.sum(count, dtype=np.float64) or float("nan"))
        shown["grad_norm"] = np.mean(trace.grad_norm, dtype=np.float64)
        shown["episodes"] = whole.episodes
        shown["frames"] = step * self.config.frames_per_step
        shown = {name: float(value) for name, value in shown.items()}
        parts: dict[str, Any] = {
            f"type/{type_name(puzzle)}": (slice(None), index) for index, puzzle in enumerate(self.puzzles)
        }
        if self.config.seeds > 1:
            parts |= {f"seed/{self.config.seed + index}": index for index in range(self.config.seeds)}
        for name, part in parts.items():
            shown[f"{name}/solved"] = int(np.sum(tally.solved[part]))
            shown[f"{name}/episodes"] = int(np.sum(tally.episodes[part]))
        return shown

    def close(self) -> None:
        """Does nothing: there are no resources to release."""


def _on_parts(state: LearnerState, on_copied: Callable, on_spread: Callable, where: Any) -> LearnerState:
    def change(state):
        return LearnerState(
            **{
                name: jax.tree.map(on_spread if name in ("actors", "keys") else on_copied, part)
                for name, part in vars(state).items()
            }
        )

    return jax.jit(change, out_shardings=where)(state)
