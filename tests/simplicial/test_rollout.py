"""Unrolls against the same steps in plain Python, and the sums over episodes."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simplicial import boxworld, rollout
from tests.simplicial import corridor

pytestmark = pytest.mark.usefixtures("compiled_quickly")

BATCH = 6
HORIZON = 150


@pytest.fixture(scope="module")
def params():
    return corridor.weights(np.random.default_rng(0))


STEPS = 40
RUN = jax.jit(rollout.unroll, static_argnums=(0, 2, 5))


def unrolled(params, actors, key):
    actors, *recorded = RUN(corridor.policy, params, corridor.ENVIRONMENT, actors, key, STEPS)
    return actors, *jax.device_get(recorded)


@functools.cache
def started():
    with jax.ensure_compile_time_eval():  # values, also if the first to ask is a function that is traced
        return jax.jit(lambda key: rollout.start(corridor.ENVIRONMENT, key, BATCH))(jax.random.key(3))


def replay(kinds, actions):
    """Simulates the corridor in plain Python: returns what an unroll with actions [B, T] should record."""
    seen, episodes = [], []
    for kind, row in zip(kinds, actions, strict=True):
        place, time, total = corridor.LENGTH // 2, 0, 0
        for action in row:
            before = (place, kind)
            place, time = place + (1 if action == 1 else -1), time + 1
            at_end = place in (0, corridor.LENGTH - 1)
            reward = (0 if not at_end else 1 if place else -1) * (1 + kind)
            total += reward
            broken = not at_end and time == corridor.HORIZON
            seen.append((*before, reward, at_end, broken))
            if at_end or broken:
                episodes.append((kind, at_end and place > 0, broken, time, total))
                place, time, total, kind = corridor.LENGTH // 2, 0, 0, 1 - kind
    return np.asarray(seen).reshape(*actions.shape, 5), episodes


@pytest.mark.parametrize(
    ("dtype", "wide"), [("bfloat16", "float32"), ("float32", "float32"), ("float64", "float64")]
)
def test_narrow_numbers_are_widened(dtype, wide):
    with jax.enable_x64(True):
        assert rollout.at_least_float32(jnp.zeros(2, dtype)).dtype == wide


def sums(episodes, kinds=2):
    of = [[episode for episode in episodes if episode[0] == kind] for kind in range(kinds)]
    return {
        "episodes": [len(some) for some in of],
        "solved": [sum(episode[1] for episode in some) for some in of],
        "truncated": [sum(episode[2] for episode in some) for some in of],
        "steps": [sum(episode[3] for episode in some) for some in of],
        "returns": [sum(episode[4] for episode in some) for some in of],
    }


def test_records_what_happened(params):
    actors = started()
    kinds = np.asarray(actors.environment.kind)
    assert 0 < kinds.sum() < BATCH, "the environments must differ for this to tell them apart"
    _, trajectories, tally = unrolled(params, actors, jax.random.key(0))
    wanted, episodes = replay(kinds, np.asarray(trajectories.action))
    place, kind, reward, terminated, truncated = np.moveaxis(wanted, -1, 0)
    np.testing.assert_array_equal(np.argmax(trajectories.observation[..., :-1], -1), place)
    np.testing.assert_array_equal(trajectories.observation[..., -1], kind)
    np.testing.assert_array_equal(trajectories.reward, reward)
    np.testing.assert_array_equal(trajectories.terminated, terminated)
    np.testing.assert_array_equal(trajectories.truncated, truncated)
    for name, value in sums(episodes).items():
        assert min(np.abs(value)) > 0, f"no {name} in these episodes"
        np.testing.assert_array_equal(getattr(tally, name), value, err_msg=name)


def test_keeps_the_logits_it_acted_on(params):
    _, trajectories, _ = unrolled(params, started(), jax.random.key(0))
    logits = corridor.policy(params, trajectories.observation).logits
    np.testing.assert_allclose(trajectories.logits, logits, rtol=1e-6)


def test_actions_follow_the_policy():
    """In 20,000 draws each action's frequency is within four standard deviations."""
    logits = np.asarray([0.3, -0.4, 1.1])
    weights = np.concatenate([np.tile(logits, (8, 1)), np.zeros((8, 1))], axis=1, dtype=np.float32)
    weights[-1] = 0
    params = {"weights": jnp.asarray(weights)}
    actors, drawn = started(), []
    for seed in range(84):
        actors, trajectories, _ = unrolled(params, actors, jax.random.key(seed))
        drawn.append(trajectories.action)
    wanted = np.exp(logits) / np.exp(logits).sum()
    shares = np.bincount(np.ravel(drawn), minlength=3) / np.size(drawn)
    np.testing.assert_array_less(np.abs(shares - wanted), 4 * np.sqrt(wanted * (1 - wanted) / 20_000))


def test_an_unroll_starts_where_the_last_one_stopped(params):
    """Episodes and their sums continue in the next unroll."""
    actors = started()
    kinds = np.asarray(actors.environment.kind)
    parts, total = [], None
    for seed in range(4):
        actors, trajectories, tally = unrolled(params, actors, jax.random.key(seed))
        assert np.asarray(actors.lengths).max() > 0, "some episode is cut in two"
        parts.append(trajectories.action)
        total = tally if total is None else jax.tree.map(np.add, total, tally)
    _, episodes = replay(kinds, np.concatenate(parts, axis=1))
    for name, value in sums(episodes).items():
        np.testing.assert_array_equal(getattr(total, name), value, err_msg=name)


def test_logits_are_kept_at_full_precision():
    """The learner's ratios need float32 logits even if the policy computes in bfloat16."""
    params = {"weights": jax.ShapeDtypeStruct((corridor.LENGTH + 1, 4), jnp.bfloat16)}
    _, trajectories, _ = jax.eval_shape(
        lambda params: RUN(corridor.policy, params, corridor.ENVIRONMENT, started(), jax.random.key(0), 2),
        params,
    )
    assert trajectories.logits.dtype == jnp.float32


def test_is_traced_once(params):
    """Also for the actors that it returns; `jit` keeps what it traced, whether it compiles it or not."""
    run = jax.jit(chex.assert_max_traces(rollout.unroll, n=1), static_argnums=(0, 2, 5))
    actors = started()
    for seed in range(3):
        call = functools.partial(run, corridor.policy, params, corridor.ENVIRONMENT, steps=12)
        actors, _, _ = jax.eval_shape(call, actors=actors, key=jax.random.key(seed))


def test_seeds_side_by_side_and_kinds_out_of_range(params):
    """Seeds are those one by one, except that an environment of one kind does not tally the other."""
    keys = jax.random.split(jax.random.key(5), 3)
    one_kind = rollout.Environment(corridor.init, corridor.observe, corridor.step)
    run = jax.vmap(lambda key: rollout.unroll(corridor.policy, params, one_kind, started(), key, STEPS))
    *together, tally = jax.device_get(jax.jit(run)(keys))
    apart = [unrolled(params, started(), key) for key in keys]
    *wanted, everything = jax.tree.map(lambda *leaves: np.stack(leaves), *apart)
    chex.assert_trees_all_close(tuple(together), tuple(wanted), rtol=1e-6)
    chex.assert_trees_all_equal(tally, jax.tree.map(lambda leaf: leaf[:, :1], everything))


@pytest.mark.parametrize("batch", [0, -1, 2.0])
def test_start_refuses(batch):
    with pytest.raises(ValueError, match=r"batch: got .*, expected an integer of at least 1"):
        rollout.start(corridor.ENVIRONMENT, jax.random.key(0), batch)


@pytest.mark.parametrize("steps", [0, 1.5])
def test_unroll_refuses_steps(params, steps):
    with pytest.raises(ValueError, match=r"steps: got .*, expected an integer of at least 1"):
        rollout.unroll(corridor.policy, params, corridor.ENVIRONMENT, started(), jax.random.key(0), steps)


def test_unroll_refuses_a_policy_without_the_batch(params):
    def policy(params, observation):
        return corridor.policy(params, observation[:1])

    with pytest.raises(
        ValueError, match=r"policy: got logits of shape \(1, 3\) .*, expected \[B, A\] with B = 6"
    ):
        rollout.unroll(policy, params, corridor.ENVIRONMENT, started(), jax.random.key(0), 2)


@pytest.mark.parametrize("name", ["reward", "terminated", "truncated", "solved", "kind"])
def test_unroll_refuses_a_step_of_the_wrong_shape(params, name):
    def step(key, state, action):
        state, outcome = corridor.step(key, state, action)
        return state, dataclasses.replace(outcome, **{name: getattr(outcome, name)[:, None]})

    environment = rollout.Environment(corridor.init, corridor.observe, step)
    with pytest.raises(ValueError, match=rf"environment.step: got {name} of shape \(6, 1\), expected \(6,\)"):
        rollout.unroll(corridor.policy, params, environment, started(), jax.random.key(0), 2)


def uniform(params, observation):
    del params
    return corridor.Output(jnp.zeros((*observation.shape[:-3], 4)), jnp.zeros(observation.shape[:-3]))


BOXWORLD = boxworld.BRIDGE.replace(horizon=HORIZON)
FEW = 5  # steps of an unroll, too few to end another episode after one that ended in the first


@pytest.fixture(scope="module")
def walk():
    """Returns actors in BoxWorld, with a horizon that truncates many episodes, and their random unroll."""
    environment = rollout.of_boxworld(BOXWORLD)
    actors = jax.jit(functools.partial(rollout.start, environment, batch=64))(jax.random.key(0))
    return actors, jax.jit(functools.partial(rollout.unroll, uniform, None, environment, steps=FEW))


@pytest.fixture(scope="module")
def walked(walk):
    """Returns the actors before and after 2 `HORIZON` + 20 steps, the trajectories and the tally."""
    before, run = walk
    after, parts = before, []
    for key in jax.random.split(jax.random.key(1), (2 * HORIZON + 20) // FEW):
        after, *recorded = run(after, key=key)
        parts.append(jax.device_get(recorded))
    trajectories, tallies = zip(*parts, strict=True)
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *trajectories)
    return before, after, joined, jax.tree.map(lambda *leaves: sum(leaves), *tallies)


def test_first_episodes_in_boxworld_are_those_of_its_steps(walked):
    """Up to its first end, every environment matches the plain environment."""
    before, _, trajectories, _ = walked

    @jax.jit
    @jax.vmap
    def seen_and_done(state, action):
        return boxworld.observe(state, BOXWORLD), *boxworld.step(state, action, BOXWORLD)

    state, live = before.environment.episodes, np.ones(64, bool)
    for t in range(HORIZON):
        seen, state, outcome = jax.device_get(seen_and_done(state, trajectories.action[:, t]))
        np.testing.assert_array_equal(trajectories.observation[live, t], seen[live])
        for name in ("reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(trajectories, name)[live, t], getattr(outcome, name)[live])
        live &= ~(outcome.terminated | outcome.truncated)
    assert not live.any(), "the horizon is over"


def test_boxworld_continues_with_other_boards(walked):
    """The step after an end shows a new board, with the player in the corner and no key held."""
    _, after, trajectories, _ = walked
    ended = np.asarray(trajectories.terminated | trajectories.truncated)[:, :-1]
    pictures = np.asarray(trajectories.observation)
    fresh = pictures[:, 1:][ended]
    assert len(fresh) > 64
    assert (fresh[:, 0, 0] == 127).all()
    assert (fresh[:, :, -1] == 10).all()
    assert len(np.unique(fresh, axis=0)) == len(fresh)
    assert after.environment.boards.repeated == 0


def test_boxworld_episodes_are_tallied_by_their_type(walked):
    _, after, trajectories, tally = walked
    terminated, truncated = np.asarray(trajectories.terminated), np.asarray(trajectories.truncated)
    reward = np.asarray(trajectories.reward)
    assert tally.episodes.shape == (len(boxworld.puzzles(BOXWORLD)),)
    assert tally.episodes.sum() == (terminated | truncated).sum()
    assert tally.truncated.sum() == truncated.sum() > 0
    assert tally.solved.sum() == (reward == 10).sum() > 0
    assert (terminated & (reward == -1)).any(), "some step into a trap"
    assert tally.steps.sum() + np.asarray(after.lengths).sum() == trajectories.action.size
    assert float(tally.returns.sum() + after.returns.sum()) == reward.sum()
    assert after.environment.boards.used == tally.episodes.sum()


def test_boxworld_kinds_are_types_of_the_episodes_that_were_stepped(walk):
    """Of episodes that the horizon ends in the first step; the boards after them have other types."""
    actors, run = walk
    state = actors.environment
    types = boxworld.puzzle_type(state.episodes)
    types = np.stack([types.solution_length, types.bridge_lock, types.bridge_key], axis=-1)
    last = dataclasses.replace(state.episodes, time=jnp.full(64, HORIZON - 1, jnp.int32))
    at_end = dataclasses.replace(actors, environment=dataclasses.replace(state, episodes=last))
    _, trajectories, tally = jax.device_get(run(at_end, key=jax.random.key(2)))
    assert trajectories.truncated.sum() == trajectories.truncated[:, 0].sum() == tally.episodes.sum() == 64
    counts = [(types == puzzle).all(axis=1).sum() for puzzle in boxworld.puzzles(BOXWORLD)]
    np.testing.assert_array_equal(tally.episodes, counts)
    assert len(set(counts)) > 3


def test_boxworld_refuses_what_it_cannot_name():
    with pytest.raises(ValueError, match=r"min_length: got .*, expected at most max_length"):
        rollout.of_boxworld(dataclasses.replace(boxworld.BRIDGE, min_length=4))
