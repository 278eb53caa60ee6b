"""The rules against the authors' recorded episodes and a plain model."""

import dataclasses
import functools
import random
from pathlib import Path
from typing import Any

import chex
import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.peers import plain_boxworld
from simplicial import boxworld

pytestmark = pytest.mark.usefixtures("compiled_quickly")

DATA = Path(__file__).parent / "data"
CONFIGS: dict[str, Any] = {"bridge": boxworld.BRIDGE, "standard": boxworld.STANDARD}
RESET_BRIDGE = jax.jit(lambda key: boxworld.reset(key, boxworld.BRIDGE))
STEP = jax.jit(boxworld.step)


def batch_from(boards, config):
    """Makes states of boards (grid, palette, deadly locks, ..) with the compiled `from_board`."""
    locks = np.full((len(boards), config.traps, 2), -1, np.int32)
    for row, board in zip(locks, boards, strict=True):
        row[: len(board[2])] = np.reshape(board[2], (-1, 2))
    grids, palettes = (np.asarray([board[i] for board in boards], np.int32) for i in (0, 1))
    return compiled(config)[2](grids, palettes, locks)


def rows(states, which):
    """Selects some episodes of a batch, or one, as NumPy arrays."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[which], states)


def solution(state):
    """Returns the actions of a shortest solution of a solvable episode."""
    actions = boxworld.solve(jax.device_get(state))
    assert actions is not None
    return actions


def play(state, actions, config):
    """Returns all outcomes and the last state."""
    outcomes = []
    for action in actions:
        state, outcome = STEP(state, action, config)
        outcomes.append(outcome)
    return state, outcomes


@functools.cache
def compiled(config):
    """Compiles `observe`, `step` and `from_board` for a batch."""
    observe = jax.jit(jax.vmap(lambda state: boxworld.observe(state, config)))
    step = jax.jit(jax.vmap(lambda state, action: boxworld.step(state, action, config)))
    make = jax.jit(jax.vmap(lambda grid, palette, lock: boxworld.from_board(grid, palette, lock, config)))
    return observe, step, make


def compare_with_plain(boards, actions, config):
    """Steps every board both ways, compares rewards, ends and pixels, and returns the rewards [T, B]."""
    observe, step, _ = compiled(config)
    states = batch_from(boards, config)
    plain = [
        plain_boxworld.PlainBoxWorld(grid, palette, deadly, config.gem_locks == 2, int(config.horizon))
        for grid, palette, deadly, *_ in boards
    ]
    rewards = []
    for t in range(actions.shape[1] + 1):
        pictures = np.asarray([model.picture() for model in plain], np.uint8)
        np.testing.assert_array_equal(observe(states), pictures, err_msg=f"picture after {t} steps")
        if t == actions.shape[1]:
            break
        states, outcome = step(states, actions[:, t])
        expected = [model.step(int(action)) for model, action in zip(plain, actions[:, t], strict=True)]
        np.testing.assert_array_equal(outcome.reward, [reward for reward, _ in expected], err_msg=f"step {t}")
        np.testing.assert_array_equal(outcome.terminated, [done for _, done in expected], err_msg=f"step {t}")
        np.testing.assert_array_equal(outcome.truncated, [model.cut for model in plain], err_msg=f"step {t}")
        rewards.append(np.asarray(outcome.reward))
    return np.asarray(rewards)


@pytest.mark.parametrize("name", CONFIGS)
def test_recorded_episodes_of_the_authors_replay_exactly(name):
    """Every reward, end and pixel of 32 episodes agrees; finished episodes do not change."""
    config, recorded = CONFIGS[name], np.load(DATA / f"boxworld_{name}.npz")
    observe, step, _ = compiled(config)
    boards = list(zip(recorded["grid"], recorded["palette"], recorded["distractor_locks_xy"], strict=True))
    state = jax.device_get(batch_from(boards, config))
    np.testing.assert_array_equal(boxworld.puzzle_type(state).solution_length, recorded["solution_length"])
    np.testing.assert_array_equal(observe(state), recorded["observations"][:, 0])
    ended = 0
    for t, actions in enumerate(recorded["actions"].T):
        before, (state, outcome) = state, jax.device_get(step(state, actions))
        live = t < recorded["length"]
        ended += int((~live).sum())
        np.testing.assert_array_equal(outcome.reward[live], recorded["rewards"][live, t])
        np.testing.assert_array_equal(outcome.terminated[live], recorded["dones"][live, t])
        np.testing.assert_array_equal(np.asarray(observe(state))[live], recorded["observations"][live, t + 1])
        chex.assert_trees_all_equal(rows(before, ~live), rows(state, ~live))
        assert not outcome.reward[~live].any()
        assert outcome.terminated[~live].all()
        assert not outcome.truncated.any()
    assert ended > 100


def with_the_gem_in_a_trap(state):
    """Moves the Gem's colour into the first trap, replaces it by colour 20, and disables all traps."""
    state = jax.tree.map(np.array, state)
    grid, (x, y) = state.grid, state.traps[0].tolist()
    gem_rows = np.nonzero((grid == 0).any(1))[0]
    grid[grid == 0] = 20
    if x >= 0:
        grid[gem_rows, state.gem[0] + 1] = 20
        grid[y, x - 1] = 0
    state.traps[:] = -1
    return state


@pytest.mark.parametrize("name", CONFIGS)
def test_random_boards_step_as_in_the_plain_model(name):
    """224 boards of each kind, 32 at a time, 100 steps; half go to the Gem first, a quarter to a trap."""
    config, draw = CONFIGS[name], random.Random(7)
    boards = [getattr(plain_boxworld, f"{name}_board")(draw) for _ in range(224)]
    actions = np.random.default_rng(7).integers(0, 4, (224, 100))
    parts = [slice(start, start + 32) for start in range(0, 224, 32)]  # a size that is compiled
    states = [jax.device_get(batch_from(boards[part], config)) for part in parts]
    states = jax.tree.map(lambda *leaves: np.concatenate(leaves), *states)
    for i in range(224):
        state = rows(states, i)
        if i % 4 == 1:
            state = with_the_gem_in_a_trap(state)
        best = None if i % 4 == 3 else boxworld.solve(state)
        actions[i, : len(best or ())] = best or ()
    rewards = np.concatenate(
        [compare_with_plain(boards[part], actions[part], config) for part in parts], axis=1
    )
    assert (rewards == 10).sum() >= 100
    assert (rewards == -1).sum() >= 20
    assert (rewards == 1).sum() >= 400
    kinds = np.asarray(states.puzzle)
    for row, board in zip(kinds, boards, strict=True):
        assert (tuple(row[:3]) == board[3]) if name == "bridge" else ((row[0], row[3]) == board[3])


def wild_board(draw, rows, cols, gem_locks, traps):
    """Draws a board unlike generated ones: boxes and keys anywhere, few colours, full inventories."""
    grid = np.full((rows, cols), -1)
    x, y = draw.randint(1, cols - 2), draw.randint(1, rows - gem_locks)
    for i in range(gem_locks):
        grid[y + i, x : x + 2] = 0, draw.randint(1, 3)
    deadly, loose = [], 0
    for _ in range(rows * cols):
        x, y, width = draw.randint(0, cols - 1), draw.randint(0, rows - 1), draw.randint(1, 2)
        near = grid[y, max(x - 1, 0) : x + width + 1]
        if (x, y) == (0, 0) or x + width > cols or (near >= 0).any() or (width == 1 and loose == rows):
            continue
        grid[y, x : x + width] = [draw.randint(1, 3) for _ in range(width)]
        loose += width == 1
        if width == 2 and len(deadly) < traps and draw.random() < 0.6:
            deadly.append((x + 1, y))
    colours = draw.sample(plain_boxworld.COLOURS, 20)
    return grid.tolist(), [(255, 255, 255), *colours], deadly


@pytest.mark.parametrize(("rows", "cols", "gem_locks"), [(4, 6, 2), (9, 5, 1)])
def test_boards_of_any_kind_step_as_in_the_plain_model(rows, cols, gem_locks):
    """Edges, equal locks on the Gem, full inventories, repeated colours, invalid actions."""
    config = boxworld.BoxWorldConfig(rows=rows, cols=cols, gem_locks=gem_locks, traps=3, horizon=70)
    draw = random.Random(rows * cols)
    boards = [wild_board(draw, rows, cols, gem_locks, 3) for _ in range(60)]
    for grid, palette, deadly in boards[:20]:  # with known values, which are checked: none raises
        known = np.asarray(grid), np.asarray(palette), np.asarray(deadly, int).reshape(-1, 2)
        jax.eval_shape(lambda known=known: boxworld.from_board(*known, config))
    actions = np.random.default_rng(rows).integers(-1, 5, (60, 80))
    rewards = compare_with_plain(boards, actions, config)
    assert set(np.unique(rewards)) == {-1, 0, 1, 10}


def test_an_action_outside_does_nothing_but_takes_time():
    """Such actions are neither wrapped around nor clamped."""
    state = RESET_BRIDGE(jax.random.key(0))
    for action in (-1, 4, 100, np.uint8(255)):
        after, outcome = STEP(state, action, boxworld.BRIDGE)
        chex.assert_trees_all_equal(after, dataclasses.replace(state, time=jnp.int32(1)))
        assert (outcome.reward, outcome.terminated, outcome.truncated) == (0, False, False)


def test_the_horizon_truncates_and_the_end_comes_first():
    """The horizon truncates an episode unless that very step reaches the Gem, which terminates it."""
    state = RESET_BRIDGE(jax.random.key(3))
    best = solution(state)
    for horizon, expected in ((len(best), (True, False)), (len(best) - 1, (False, True)), (0, (True, False))):
        last, outcomes = play(state, best, boxworld.BRIDGE.replace(horizon=horizon))
        assert (bool(outcomes[-1].terminated), bool(outcomes[-1].truncated)) == expected
        assert outcomes[-1].reward == (10 if expected[0] else 0)
        assert last.time == (horizon or len(best))
        assert not any(outcome.terminated | outcome.truncated for outcome in outcomes[: last.time - 1])


def test_a_step_is_traced_once_with_another_horizon():
    """The config's leaves are arguments, not constants, so a curriculum does not compile again."""
    step = jax.jit(chex.assert_max_traces(boxworld.step, n=1))
    state = RESET_BRIDGE(jax.random.key(0))
    for horizon in (1, 2):
        _, outcome = step(state, 1, boxworld.BRIDGE.replace(horizon=horizon))
        assert bool(outcome.truncated) == (horizon == 1)


TYPES = {
    "grid": "int8", "inventory": "int8", "player": "int8", "gem": "int8", "palette": "uint8",
    "traps": "int8", "puzzle": "int8", "time": "int32", "terminated": "bool", "truncated": "bool",
}  # fmt: skip


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", CONFIGS)
def test_states_are_narrow(name, x64):
    """However they were made, and where JAX's numbers are wide by default; times and counts are int32."""
    config = CONFIGS[name]
    with jax.enable_x64(x64):
        drawn = jax.eval_shape(lambda key: boxworld.reset(key, config), jax.random.key(0))
        by_hand = jax.eval_shape(lambda s: boxworld.from_board(s.grid, s.palette, s.traps, config), drawn)
        stepped, outcome = jax.eval_shape(lambda s: boxworld.step(s, 1, config), drawn)
        boards = jax.eval_shape(lambda key: boxworld.pool(key, 2, config), jax.random.key(0))
        number = jax.eval_shape(lambda s: boxworld.puzzle_number(s, config), drawn)
    for state in (drawn, by_hand, stepped, boards.states):
        assert {field: str(leaf.dtype) for field, leaf in vars(state).items()} == TYPES
    assert {leaf.dtype for leaf in (boards.used, boards.drawn, boards.repeated, number)} == {
        np.dtype("int32")
    }
    assert outcome.reward.dtype == jnp.float32


def wide(jaxpr):
    """Lists the intermediate arrays of more than two numbers that are wider than a byte."""
    found = []
    for equation in jaxpr.eqns:
        inner = [part for part in equation.params.values() if isinstance(part, jax.extend.core.ClosedJaxpr)]
        found += [line for part in inner for line in wide(part.jaxpr)]
        for variable in equation.outvars:
            aval: Any = variable.aval
            if aval.size > 2 and aval.dtype.itemsize > 1:
                found.append(f"{equation.primitive}: {aval}")
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_a_step_handles_boards_as_bytes(name):
    """A batch's speed is that of memory, so no whole board or inventory becomes wider on the way."""
    config = CONFIGS[name]
    state = jax.eval_shape(lambda key: boxworld.reset(key, config), jax.random.key(0))
    assert wide(jax.make_jaxpr(lambda s, a: boxworld.step(s, a, config))(state, 1).jaxpr) == []
    assert wide(jax.make_jaxpr(lambda s: s.grid + jnp.arange(config.cols)[None])(state).jaxpr)


def test_a_puzzle_keeps_its_type_to_the_end():
    """The type stays after boxes have been opened."""
    state = RESET_BRIDGE(jax.random.key(3))
    kind = boxworld.puzzle_type(state)
    state, outcomes = play(state, solution(state), boxworld.BRIDGE)
    assert outcomes[-1].reward == 10
    chex.assert_trees_all_equal(boxworld.puzzle_type(state), kind)


def test_a_batch_may_have_any_leading_axes():
    """Checks `puzzle_type` and vmapped functions on nested batches."""
    keys = jax.random.split(jax.random.key(0), (2, 3))
    reset = jax.vmap(jax.vmap(lambda key: boxworld.reset(key, boxworld.STANDARD)))
    observe = jax.vmap(jax.vmap(lambda state: boxworld.observe(state, boxworld.STANDARD)))
    states = jax.eval_shape(reset, keys)
    pictures = jax.eval_shape(observe, states)
    chex.assert_shape(jax.eval_shape(boxworld.puzzle_type, states).distractors, (2, 3))
    chex.assert_shape(pictures, (2, 3, 9, 10, 3))
    assert pictures.dtype == jnp.uint8
