"""Win rates by type of puzzle: boards, scheduling of lanes, and known rates."""

import collections
import dataclasses
import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.peers import plain_boxworld
from simplicial import boxworld, win_rates
from simplicial.agent import AgentOutput
from tests.simplicial.small import quickly

pytestmark = pytest.mark.usefixtures("compiled_quickly")

BRIDGE, STANDARD = boxworld.BRIDGE, boxworld.STANDARD
ALL_TYPES = boxworld.puzzles(BRIDGE)
DRAWN, LANES = 20_000, 8
RESET = jax.jit(boxworld.reset_batch, static_argnums=1)
SEEN = set()  # shapes of the observations of `linear`


def uniform(params, observation):
    """Returns the same logits for every observation."""
    batch = observation.shape[:-3]
    return AgentOutput(logits=jnp.zeros((*batch, 4)), value=jnp.zeros(batch))


def linear(params, observation):
    """Returns logits that depend on the whole observation and the parameters."""
    SEEN.add(observation.shape)
    pixels = observation.reshape(*observation.shape[:-3], -1).astype(jnp.float32) / 255
    return AgentOutput(logits=pixels @ params, value=pixels[..., 0])


def weights(seed, scale=0.02):
    return jnp.asarray(scale * np.random.default_rng(seed).normal(size=(7 * 10 * 3, 4)), jnp.float32)


def item(tree, i):
    return jax.tree.map(lambda leaf: leaf[i], tree)


@pytest.fixture(scope="module")
def many():
    """Draws a thousand boards of every type of bridge BoxWorld."""
    return jax.device_get(win_rates.boards_of(jax.random.key(0), ALL_TYPES, 1000, BRIDGE))


@pytest.fixture(scope="module")
def boards(many):
    """Returns thirty boards of every type."""
    return item(many, np.arange(len(many.time)) % 1000 < 30)


@pytest.fixture(scope="module")
def some(boards):
    """Returns twenty boards of all types."""
    return item(boards, slice(None, None, 26))


def test_boards_are_of_the_type_asked_for(boards):
    """Checked with `from_board`, which infers the type from the tiles, and with the solver."""
    read = jax.jit(jax.vmap(lambda s: boxworld.from_board(s.grid, s.palette, s.traps, BRIDGE)))
    assert boards.time.shape == (30 * len(ALL_TYPES),)
    again = jax.device_get(read(boards)).puzzle
    wanted = np.repeat(ALL_TYPES, 30, axis=0)
    np.testing.assert_array_equal(boards.puzzle[:, :3], wanted)
    np.testing.assert_array_equal(again[:, :3], wanted)
    np.testing.assert_array_equal(boards.traps[:, 0, 0] > 0, wanted[:, 1] > 0)
    for i in range(0, len(boards.time), 15):
        assert boxworld.shortest_solution(item(boards, i)) is not None


def test_boards_differ_within_a_type(boards):
    for kind in range(len(ALL_TYPES)):
        assert len({boards.grid[30 * kind + i].tobytes() for i in range(30)}) > 10
        assert len({boards.palette[30 * kind + i].tobytes() for i in range(30)}) == 30


def test_boards_of_a_type_are_those_of_reset_with_that_type(many):
    """For the types of two keys with a bridge, compares where the bridge is with boards of all of them."""
    config = BRIDGE.replace(min_length=2, max_length=2, bridge_probability=1.0)
    wanted = (many.puzzle[:, 0] == 2) & (many.puzzle[:, 1] > 0)
    drawn = item(many, wanted)
    found = jax.device_get(RESET(jax.random.key(2), DRAWN, config))

    def shares(states):
        places = collections.Counter(
            (tuple(gem), tuple(trap[0]))
            for gem, trap in zip(states.gem.tolist(), states.traps.tolist(), strict=True)
        )
        total = sum(places.values())
        return {place: count / total for place, count in places.items()}, total

    (one, count), (other, others) = shares(drawn), shares(found)
    assert set(one) == set(other), "the same places are possible"
    # Half the sum of differences of two samples of one distribution with 28 values is about .03 (+- .005).
    assert count > 3000
    assert others > 3000
    assert sum(abs(one[place] - other[place]) for place in one) / 2 < 0.06


def plainly(boards, params, seed, cap, greedy):
    """Plays the same episodes in the plain model of the rules: solved, died, steps."""

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, 0, None))
    def act(picture, number, time):
        logits = linear(params, picture[None]).logits[0]
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), number), time)
        return jnp.argmax(logits) if greedy else jax.random.categorical(key, logits)

    models = []
    for i in range(len(boards.time)):
        state = item(boards, i)
        deadly = [place for place in state.traps.tolist() if place[0] >= 0]
        models.append(plain_boxworld.PlainBoxWorld(state.grid, state.palette, deadly, two_locks=True))
    pictures = np.asarray([model.picture() for model in models], np.uint8)
    results = np.zeros((len(models), 3), int)
    live = set(range(len(models)))
    for time in range(cap):
        actions = np.asarray(act(pictures, np.arange(len(models)), time))
        for i in sorted(live):
            reward, done = models[i].step(int(actions[i]))
            pictures[i] = models[i].picture()
            results[i] = reward == 10, reward == -1, time + 1
            live -= {i} if done else set()
    return results.T


@pytest.mark.parametrize(("greedy", "cap"), [(False, 300), (True, 40)])
def test_episodes_are_those_of_the_plain_model(some, greedy, cap):
    """There are fewer lanes than boards, so lanes switch boards at different times."""
    params = weights(3)
    played = win_rates.play(
        linear, params, some, BRIDGE, jax.random.key(4), cap=cap, greedy=greedy, lanes=LANES
    )
    solved, died, steps = plainly(some, params, 4, cap, greedy)
    np.testing.assert_array_equal(played.solved, solved)
    np.testing.assert_array_equal(played.died, died)
    np.testing.assert_array_equal(played.steps, steps)
    assert (steps == cap).any()
    if not greedy:
        assert solved.sum() > 0
        assert died.sum() > 0


def test_a_greedy_player_takes_the_best_action_however_little_better_it_is(some):
    state, seen = jax.tree.map(jnp.asarray, item(some, 0)), []
    actions = boxworld.solve(state)
    assert actions is not None
    step = quickly(lambda state, action: boxworld.step(state, action, BRIDGE)[0])
    observe = quickly(lambda state: boxworld.observe(state, BRIDGE))
    for action in actions:
        seen.append(observe(state))
        state = step(state, action)
    pictures, best = jnp.stack(seen), jax.nn.one_hot(jnp.asarray(actions), 4)

    def policy(params, observation):
        known = (observation[:, None] == pictures[None]).all((2, 3, 4)).astype(jnp.float32)
        return AgentOutput(logits=1e-3 * known @ best, value=known[:, 0])

    boards = item(some, slice(1))
    played = win_rates.play(policy, None, boards, BRIDGE, jax.random.key(0), cap=len(actions), greedy=True)
    assert played.solved.tolist() == [True]
    assert played.steps.tolist() == [len(actions)]


def test_lanes_change_nothing_and_a_horizon_gives_up_like_the_cap(some):
    """Also with more lanes than boards."""
    params, key = weights(5), jax.random.key(6)
    capped = win_rates.play(linear, params, some, BRIDGE, key, cap=200, lanes=LANES)
    assert (LANES, 7, 10, 3) in SEEN, "as many boards at a time as there are lanes"
    more = win_rates.play(linear, params, some, BRIDGE, key, cap=200, lanes=1000)
    assert (20, 7, 10, 3) in SEEN
    chex.assert_trees_all_equal(capped, more)
    broken = win_rates.play(linear, params, some, BRIDGE.replace(horizon=200), key, lanes=LANES)
    chex.assert_trees_all_equal(capped, broken)
    assert (np.asarray(capped.steps) <= 200).all()
    assert len(set(np.asarray(capped.steps).tolist())) > 5


@pytest.mark.slow
def test_random_policy_solves_what_it_is_known_to_solve():
    """0.738 of bridge boards without a cap (from 315,000 episodes), within four standard errors."""
    episodes = 150
    evaluation = jax.device_get(
        win_rates.evaluate(uniform, (), BRIDGE, jax.random.key(0), episodes=episodes, cap=10**6, lanes=1024)
    )
    np.testing.assert_array_equal(evaluation.puzzles, ALL_TYPES)
    assert (evaluation.episodes == episodes).all()
    assert (evaluation.capped == 0).all()
    np.testing.assert_array_equal(evaluation.solved + evaluation.died, evaluation.episodes)
    rate = evaluation.solved / episodes
    length, has_bridge = evaluation.puzzles[:, 0], evaluation.puzzles[:, 1] > 0
    assert (rate[~has_bridge] == 1).all()
    overall, variance = 0.0, 0.0
    for L in (1, 2, 3):
        share = rate[has_bridge & (length == L)]
        overall += (0.5 + 0.5 * share.mean()) / 3
        variance += (share * (1 - share)).sum() / episodes / (6 * len(share)) ** 2
    assert overall == pytest.approx(0.738, abs=4 * variance**0.5)
    assert 4 * variance**0.5 < 0.035, "the bound says something"
    steps = evaluation.steps / episodes
    average = np.mean(
        [
            (steps[~has_bridge & (length == L)][0] + steps[has_bridge & (length == L)].mean()) / 2
            for L in (1, 2, 3)
        ]
    )
    assert average == pytest.approx(577, rel=0.1)


@pytest.mark.parametrize("greedy", [False, True])
def test_an_evaluation_is_its_parts(greedy):
    """Boards, play and counts by hand, with a key for each; by default of all types that the config draws."""
    config, params = BRIDGE.replace(max_length=1), weights(2, scale=0.01)
    given: dict[str, Any] = {"cap": 250, "greedy": greedy, "lanes": LANES}
    counts = win_rates.evaluate(linear, params, config, jax.random.key(3), episodes=10, **given)
    for_boards, for_actions = jax.random.split(jax.random.key(3))
    types = [(1, 0, 0), (1, 1, 2)]
    boards = win_rates.boards_of(for_boards, types, 10, config)
    played = win_rates.play(linear, params, boards, config, for_actions, **given)
    assert 0 < np.sum(counts.capped) < (21 if greedy else 20)
    chex.assert_trees_all_equal(counts, win_rates.tally(played, types))
    np.testing.assert_array_equal(counts.puzzles, types)


def test_counts_are_sums_over_each_type():
    random = np.random.default_rng(0)
    end, steps = random.integers(3, size=510), random.integers(1, 300, size=510, dtype=np.int32)
    played = win_rates.Played(*map(jnp.asarray, (end == 0, end == 1, steps)))
    counts = jax.device_get(jax.jit(lambda played: win_rates.tally(played, ALL_TYPES))(played))
    np.testing.assert_array_equal(counts.puzzles, ALL_TYPES)
    for kind in range(len(ALL_TYPES)):
        own = slice(30 * kind, 30 * kind + 30)
        solved, died = end[own] == 0, end[own] == 1
        assert counts.episodes[kind] == 30
        assert counts.solved[kind] == solved.sum()
        assert counts.died[kind] == died.sum()
        assert counts.capped[kind] == (~solved & ~died).sum()
        assert counts.steps[kind] == steps[own].sum()
        assert counts.solved_steps[kind] == steps[own][solved].sum()
    with pytest.raises(ValueError, match="played: got 510 boards, expected equally many of each of 4 types"):
        win_rates.tally(played, ALL_TYPES[:4])


def test_standard_boards_have_their_distractors():
    types = boxworld.puzzles(STANDARD)
    boards = jax.device_get(win_rates.boards_of(jax.random.key(3), types, 200, STANDARD))
    np.testing.assert_array_equal(boards.puzzle[:, :3], np.repeat(types, 200, axis=0))
    read = jax.jit(jax.vmap(lambda s: boxworld.from_board(s.grid, s.palette, s.traps, STANDARD)))
    chex.assert_trees_all_equal(read(boards), boards)
    distractors = np.bincount(boards.puzzle[:, 3], minlength=5)
    assert len(distractors) == 5
    assert (np.abs(distractors - 200) < 4 * (1000 * 0.2 * 0.8) ** 0.5).all()


@pytest.mark.slow
def test_inside_jit_over_several_seeds():
    """As used in training: one program for the parameters of all seeds."""
    seeds = jnp.stack([weights(0), weights(1), weights(2)])
    types = [(1, 0, 0), (1, 1, 2)]

    def rates(params, key):
        return win_rates.evaluate(linear, params, BRIDGE, key, episodes=6, cap=40, puzzles=types, lanes=4)

    run = quickly(jax.vmap(chex.assert_max_traces(lambda *a: rates(*a), n=1), in_axes=(0, None)))
    together = run(seeds, jax.random.key(0))
    run(seeds + 1, jax.random.key(1))
    one = quickly(rates)
    apart = [one(params, jax.random.key(0)) for params in seeds]
    chex.assert_trees_all_equal(together, jax.tree.map(lambda *leaves: jnp.stack(leaves), *apart))


def test_a_perfect_player_has_ratio_one(boards):
    """The ratio is steps over shortest solution, and NaN if the board was not solved."""
    some = jax.tree.map(lambda leaf: leaf[::60], boards)
    shortest = np.asarray([boxworld.shortest_solution(item(some, i)) for i in range(len(some.time))])
    solved = np.arange(len(shortest)) % 3 != 0
    steps = np.where(np.arange(len(shortest)) % 2 == 0, shortest, 3 * shortest)
    played = win_rates.Played(*map(jnp.asarray, (solved, ~solved, steps)))
    ratios = win_rates.solution_ratios(some, played)
    np.testing.assert_array_equal(np.isnan(ratios), ~solved)
    np.testing.assert_allclose(ratios[solved], np.where(np.arange(len(shortest)) % 2 == 0, 1, 3)[solved])
    with pytest.raises(ValueError, match=r"boards: got leading axes .*, as in played"):
        win_rates.solution_ratios(item(some, 0), played)
    with pytest.raises(ValueError, match=r"boards: got leading axes \(1,\), expected one"):
        win_rates.solution_ratios(item(some, slice(1)), played)


@pytest.mark.parametrize("config", [BRIDGE, STANDARD, BRIDGE.replace(bridge_probability=1.0, min_length=2)])
def test_probabilities_are_those_of_the_generator(config):
    """Frequencies in 20,000 boards are within 4.5 standard errors; every type occurs."""
    types = boxworld.puzzles(config)
    found = win_rates.probabilities(types, config)
    assert found.sum() == pytest.approx(1)
    puzzles = jax.device_get(RESET(jax.random.key(0), DRAWN, config)).puzzle
    for puzzle, probability in zip(types, found, strict=True):
        share = (puzzles[:, :3] == puzzle).all(axis=1).mean()
        assert share > 0
        assert abs(share - probability) < 4.5 * (probability * (1 - probability) / DRAWN) ** 0.5
    with pytest.raises(ValueError, match=r"puzzles: got \(9, 0, 0\), expected types that the config draws"):
        win_rates.probabilities([(9, 0, 0)], config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"episodes": 0}, "episodes: got 0, expected an integer of at least 1"),
        ({"episodes": 2.0}, r"episodes: got .*, expected an integer"),
        ({"cap": 0, "puzzles": [(1, 0, 0), (1, 1, 2)]}, r"cap: got .*, expected an integer of at least 1"),
        (
            {"lanes": True, "puzzles": [(1, 0, 0), (1, 1, 2)]},
            r"lanes: got .*, expected an integer of at least 1",
        ),
        ({"puzzles": []}, r"puzzles: got shape \(0,\), expected one or more \(L, s, t\)"),
        ({"puzzles": [(1, 0)]}, r"puzzles: got shape \(1, 2\)"),
        ({"puzzles": [(2, 3, 4)]}, r"\(2, 3, 4\), expected 1 <= s <= L"),
        ({"puzzles": [(2, 1, 2)]}, r"L \+ 1 <= t <= 2L"),
        ({"puzzles": [(2, 1, 5)]}, r"L \+ 1 <= t <= 2L"),
        ({"puzzles": [(2, 0, 3)]}, "or s = t = 0 without one"),
        ({"puzzles": [(0, 0, 0)]}, r"\(0, 0, 0\), expected a type that fits the board \(min_length"),
        ({"puzzles": [(4, 0, 0)]}, r"\(4, 0, 0\), expected a type that fits the board \(max_length=4.*slots"),
        ({"puzzles": [(1, 1, 2)], "config": STANDARD}, "a Gem with one lock has no bridge"),
    ],
)
def test_refuses(change, message):
    arguments: dict[str, Any] = {"config": BRIDGE, "episodes": 10, **change}
    with pytest.raises(ValueError, match=message):
        win_rates.evaluate(uniform, (), key=jax.random.key(0), **arguments)


def test_refuses_what_is_no_batch(boards):
    with pytest.raises(ValueError, match=r"boards: got leading axes .*, \[E\]"):
        win_rates.play(uniform, (), item(boards, 0), BRIDGE, jax.random.key(0))
    names = {field.name for field in dataclasses.fields(win_rates.Evaluation)}
    assert {"puzzles", "episodes", "solved", "died", "capped", "steps"} <= names
