"""Compares our BoxWorld with an ordinary environment in plain Python, one episode at a time.

The plain environment is the one that tests compare with (`plain_boxworld.py`). As in `benchmarks.boxworld`,
both run a random policy, and every picture is rendered and read.
"""

import random
from typing import Any

import jax
import numpy as np

from benchmarks import boxworld as environments
from benchmarks import timing
from benchmarks.peers import plain_boxworld
from simplicial import boxworld

PLAIN_STEPS = 2000


def apart(name: str, episodes: int = 16, steps: int = 200) -> float:
    """Returns the maximum difference of pictures, rewards and ends over random episodes on equal boards."""
    draw, config = random.Random(1), environments.CONFIGS[name]
    boards = [getattr(plain_boxworld, f"{name}_board")(draw) for _ in range(episodes)]
    locks = np.full((episodes, config.traps, 2), -1, np.int32)
    for row, (_, _, deadly, _) in zip(locks, boards, strict=True):
        row[: len(deadly)] = np.reshape(deadly, (-1, 2))
    grids, palettes = (np.asarray([board[i] for board in boards], np.int32) for i in (0, 1))
    start = jax.jit(jax.vmap(lambda grid, colours, lock: boxworld.from_board(grid, colours, lock, config)))
    actions = np.random.default_rng(1).integers(0, 4, (steps, episodes))

    @jax.jit
    def play(states, actions):
        def step(states, chosen):
            seen = jax.vmap(lambda state: boxworld.observe(state, config))(states)
            states, outcome = jax.vmap(lambda s, a: boxworld.step(s, a, config))(states, chosen)
            return states, (seen, outcome.reward, outcome.terminated)

        return jax.lax.scan(step, states, actions)[1]

    ours = [np.asarray(x, np.float64) for x in play(start(grids, palettes, locks), actions)]
    worst = 0.0
    for i, (grid, palette, deadly, _) in enumerate(boards):
        horizon = int(np.asarray(config.horizon))
        plain = plain_boxworld.PlainBoxWorld(grid, palette, deadly, name == "bridge", horizon)
        for t in range(steps):
            expected = plain.picture(), *plain.step(int(actions[t, i]))
            for mine, theirs in zip(ours, expected, strict=True):
                worst = max(worst, float(np.max(np.abs(mine[t, i] - np.asarray(theirs, np.float64)))))
    return worst


def measure(name: str, batch: int, steps: int, *, blocks: int, block_seconds: float) -> dict[str, Any]:
    """Returns a row like those of `comparing.measure`, with seconds per step of one environment."""
    peer: dict[str, Any] = {"difference": apart(name), "where": "", "tolerance": 0.0}
    row: dict[str, Any] = {
        "subject": f"BoxWorld, {name}",
        "shape": f"a step with its picture; {batch} parallel environments in ours, one in theirs",
        "direction": "forward",
        "ours": {},
        "peers": {"plain Python": peer},
    }
    if peer["difference"]:
        peer["differs"] = f"pictures, rewards or ends by {peer['difference']:g}"
        return row
    config = environments.CONFIGS[name]
    calls = {
        "ours": environments.endless(config, batch, steps, pictures=True),
        "plain": environments.plainly(name, PLAIN_STEPS),
    }
    counts = {"ours": batch * steps, "plain": PLAIN_STEPS}
    found = timing.alternate(calls, blocks=blocks, block_seconds=block_seconds)
    times = {key: [seconds / counts[key] for seconds in blocks_of] for key, blocks_of in found.items()}
    row["ours"] = {"seconds": float(np.median(times["ours"])), "blocks": times["ours"]}
    peer |= {"seconds": float(np.median(times["plain"])), "blocks": times["plain"]}
    peer["times_as_long"] = timing.ratio(times["plain"], times["ours"])
    return row
