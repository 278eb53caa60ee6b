"""Measures BoxWorld steps per second with a random policy, against plain Python and a naive auto-reset.

    python -m benchmarks.boxworld --out=results/boxworld/environment_speed.json

The environments run as in training: batches of 4,096, restarting from a pool of boards, everything inside one
scan. Every picture is rendered and summed, so that the compiler cannot drop it. It is compared, in
alternating blocks on the same machine, with the same steps without pictures; with drawing a board for every
environment at every step, as libraries with a built-in auto-reset do; and with one episode at a time in plain
Python with pictures, the implementation used in the tests. `core_ns` is the processor time per step, summed
over all cores; on a busy machine it is more reliable than wall-clock time.

The batched solver (`boxworld.solutions`) solves states after up to 200 random moves, and is compared with the
plain search (`boxworld.solve`), which finds one shortest solution of one state.
"""

import functools
import random
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks import launching, timing
from benchmarks.peers import plain_boxworld
from simplicial import boxworld
from simplicial.boxworld.pool import select

BATCH, STEPS = 4096, 100
SOLVED_ONE_BY_ONE = 100
SOLVER, SEARCH = "batched solver", "plain search"
UNITS = {SOLVER: "states", SEARCH: "states"}
OUT = "results/boxworld/environment_speed.json"
CONFIGS = {"bridge": boxworld.BRIDGE, "standard": boxworld.STANDARD}


def endless(config: boxworld.BoxWorldConfig, batch: int, steps: int, *, pictures: bool) -> Callable[[], Any]:
    """Returns a rollout of the random policy that continues where it stopped, with a new pool each call."""

    @jax.jit
    def rollout(states, key):
        for_pool, key = jax.random.split(key)
        # A random episode takes hundreds of steps, so half a board per environment is enough for 100 steps.
        boards = boxworld.pool(for_pool, max(batch // 2, 1), config)

        def act(carry, key):
            states, boards, total = carry
            if pictures:
                seen = jax.vmap(lambda state: boxworld.observe(state, config))(states)
                total += jnp.sum(seen, axis=(1, 2, 3), dtype=jnp.int32)
            actions = jax.random.bits(key, (batch,), jnp.uint8) % 4
            states, transition, boards = boxworld.step_or_restart(states, actions, boards, config)
            return (states, boards, total + transition.outcome.reward.astype(jnp.int32)), None

        start = states, boards, jnp.zeros(batch, jnp.int32)
        (states, boards, total), _ = jax.lax.scan(act, start, jax.random.split(key, steps))
        return states, total, boards.repeated

    return _continuing(rollout, config, batch)


def resetting(config: boxworld.BoxWorldConfig, batch: int, steps: int) -> Callable[[], Any]:
    """Returns the same rollout with pictures, drawing a board for every environment at every step."""

    @jax.jit
    def rollout(states, key):
        def one(state, action, key):
            state, outcome = boxworld.step(state, action, config)
            fresh = boxworld.reset(key, config)
            ended = outcome.terminated | outcome.truncated
            return jax.tree.map(lambda new, old: jnp.where(ended, new, old), fresh, state), outcome.reward

        def act(carry, key):
            states, total = carry
            seen = jax.vmap(lambda state: boxworld.observe(state, config))(states)
            for_actions, for_boards = jax.random.split(key)
            actions = jax.random.bits(for_actions, (batch,), jnp.uint8) % 4
            states, rewards = jax.vmap(one)(states, actions, jax.random.split(for_boards, batch))
            total += jnp.sum(seen, axis=(1, 2, 3), dtype=jnp.int32) + rewards.astype(jnp.int32)
            return (states, total), None

        start = states, jnp.zeros(batch, jnp.int32)
        (states, total), _ = jax.lax.scan(act, start, jax.random.split(key, steps))
        return states, total, jnp.int32(0)

    return _continuing(rollout, config, batch)


def _continuing(rollout, config, batch) -> Callable[[], Any]:
    states = jax.jit(boxworld.reset_batch, static_argnums=1)(jax.random.key(0), batch, config)
    carry = [states, 0]

    def run():
        states, total, repeated = rollout(carry[0], jax.random.key(carry[1]))
        carry[:] = states, carry[1] + 1
        if repeated:
            raise RuntimeError(f"pool: too small, {repeated} boards were used twice")
        return total

    return run


def plainly(name: str, steps: int) -> Callable[[], Any]:
    """Returns a rollout of consecutive episodes in plain Python, rendering a picture per step."""
    draw = random.Random(0)
    make = getattr(plain_boxworld, f"{name}_board")

    def episode():
        grid, palette, deadly, _ = make(draw)
        return plain_boxworld.PlainBoxWorld(grid, palette, deadly, name == "bridge")

    current = [episode()]

    def run():
        total = 0
        for _ in range(steps):
            total += sum(map(sum, current[0].picture()[0]))
            _, done = current[0].step(draw.randrange(4))
            if done:
                current[0] = episode()
        return np.int64(total)

    return run


def solving(config: boxworld.BoxWorldConfig, batch: int) -> tuple[Callable[[], Any], Callable[[], Any], int]:
    """Returns two functions that solve states after up to 200 random moves, and the second one's number.

    The first solves `batch` states at once, the second the first of these states one by one.
    """

    @jax.jit
    def wander(key):
        for_boards, for_lengths, for_actions = jax.random.split(key, 3)
        length = jax.random.randint(for_lengths, (batch,), 0, 201)

        def move(states, now):
            time, key = now
            actions = jax.random.randint(key, (batch,), 0, 4)
            after, _ = jax.vmap(boxworld.step, (0, 0, None))(states, actions, config)
            return select(time < length, after, states), None

        states = boxworld.reset_batch(for_boards, batch, config)
        return jax.lax.scan(move, states, (jnp.arange(200), jax.random.split(for_actions, 200)))[0]

    states = wander(jax.random.key(0))
    together = jax.jit(lambda states: boxworld.solutions(states, config).distance)
    count = min(batch, SOLVED_ONE_BY_ONE)
    each = jax.device_get(jax.tree.map(lambda leaf: leaf[:count], states))

    def one_by_one():
        lengths = (
            boxworld.shortest_solution(jax.tree.map(lambda leaf, i=i: leaf[i], each)) for i in range(count)
        )
        return np.asarray([-1 if length is None else length for length in lengths])

    return functools.partial(together, states), one_by_one, count


def measure(name: str, batch: int, steps: int, blocks: int, block_seconds: float) -> dict[str, Any]:
    """Measures all variants of one environment: rates, and processor time per step or state."""
    config = CONFIGS[name]
    plain_steps = 2000
    variants = {
        "with pictures": (endless(config, batch, steps, pictures=True), batch * steps),
        "without pictures": (endless(config, batch, steps, pictures=False), batch * steps),
        "a reset at every step": (resetting(config, batch, max(steps // 10, 1)), batch * max(steps // 10, 1)),
        "plain Python": (plainly(name, plain_steps), plain_steps),
    }
    together, one_by_one, count = solving(config, batch)
    variants |= {SOLVER: (together, batch), SEARCH: (one_by_one, count)}
    spent = dict.fromkeys(variants, (0.0, 0))

    def counted(name, run):
        start = time.process_time()
        result = jax.block_until_ready(run())
        seconds, calls = spent[name]
        spent[name] = seconds + time.process_time() - start, calls + 1
        return result

    for run, _ in variants.values():
        jax.block_until_ready(run())  # compiles
    times = timing.alternate(
        {variant: functools.partial(counted, variant, run) for variant, (run, _) in variants.items()},
        blocks=blocks,
        block_seconds=block_seconds,
    )
    rows, a_step = {}, {}
    for variant, (_, count) in variants.items():
        a_step[variant] = [seconds / count for seconds in times[variant]]
        rows[variant] = {
            f"{UNITS.get(variant, 'steps')}_per_second": timing.spread(
                [count / seconds for seconds in times[variant]]
            ),
            "core_ns": spent[variant][0] / spent[variant][1] / count * 1e9,
        }
    ratios = {
        variant: timing.ratio(a_step[variant], a_step["with pictures"])
        for variant in ("plain Python", "a reset at every step")
    }
    return {
        "environment": name,
        "batch": batch,
        "steps": steps,
        "rates": rows,
        "times_faster_than": ratios,
        "solver_times_faster": timing.ratio(a_step[SEARCH], a_step[SOLVER]),
    }


def format_row(row: dict[str, Any]) -> str:
    """Formats a row as one line per variant and per ratio."""
    name, lines = row["environment"], []
    for variant, rate in row["rates"].items():
        unit = UNITS.get(variant, "steps")
        core = f"{rate['core_ns']:8.0f} core ns per {unit[:-1]}"
        lines.append(f"{name:9} {variant:22} {rate[f'{unit}_per_second']['median']:12,.0f} {unit}/s {core}")
    for variant, ratio in row["times_faster_than"].items():
        lines.append(f"{name:9} {ratio['median']:.0f} times as fast as {variant}")
    lines.append(f"{name:9} {SOLVER}: {row['solver_times_faster']['median']:.0f} times as fast as {SEARCH}")
    return "\n".join(lines)


def main() -> None:
    """Runs the program with the values of its flags."""
    given = flags.FLAGS
    sizes = given.batch, given.steps, given.blocks, given.block_seconds
    rows = (measure(name, *sizes) for name in CONFIGS)
    launching.record(rows, format_row, given.out, "python -m benchmarks.boxworld")


if __name__ == "__main__":
    flags.DEFINE_string("out", OUT, "output file; empty to write none")
    flags.DEFINE_integer("batch", BATCH, "number of parallel environments", lower_bound=1)
    flags.DEFINE_integer("steps", STEPS, "steps per rollout", lower_bound=1)
    flags.DEFINE_integer("blocks", 7, "timing blocks per variant", lower_bound=1)
    flags.DEFINE_float("block_seconds", 0.5, "approximate seconds per block", lower_bound=0.01)
    launching.run(main)
