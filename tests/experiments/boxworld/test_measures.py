"""Measures of agents: counts are of the boards that were played, however they are grouped."""

import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.boxworld import measures
from experiments.boxworld.config import BoardConfig
from experiments.runtime import intervals
from simplicial import AgentOutput, boxworld, win_rates
from tests.experiments.boxworld.small import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

BOARD = BoardConfig(world="standard", rows=5, cols=6, max_length=2, max_distractors=1)
TYPES = [(1, 0, 0), (2, 0, 0)]


def linear(params, observation):
    """Is a policy that depends on all of a picture and compiles soon."""
    pixels = observation.reshape(*observation.shape[:-3], -1).astype(jnp.float32) / 255
    return AgentOutput(logits=pixels @ params["weights"], value=pixels[..., 0])


def weights(seed, *shape):
    return {"weights": jnp.asarray(0.01 * np.random.default_rng(seed).normal(size=shape), jnp.float32)}


def test_measured_is_what_is_played(monkeypatch):
    """Shares are those of what is played; overall is as the environment draws its boards."""
    config = boxworld.BRIDGE.replace(max_length=1, bridge_probability=0.25)
    player: Any = types.SimpleNamespace(policy=linear, params=weights(0, 210, 4), config=config)
    cap = 300
    counts, record = measures.by_type(player, episodes_each=40, seed=3, cap=cap)
    assert list(record["types"]) == ["L = 1, no bridge", "(1,1,2)"]
    np.testing.assert_array_equal(counts.puzzles, [(1, 0, 0), (1, 1, 2)])
    assert (counts.solved > 0).all()
    assert (counts.solved < 40).all()
    for_boards, for_actions = jax.random.split(jax.random.key(3))
    boards = win_rates.boards_of(for_boards, [(1, 0, 0), (1, 1, 2)], 40, config)
    played = win_rates.play(linear, player.params, boards, config, for_actions, cap=cap)
    for name in ("solved", "died", "steps"):
        total = np.asarray(getattr(played, name)).reshape(2, 40).sum(1)
        np.testing.assert_array_equal(getattr(counts, name), total)
    ratios = win_rates.solution_ratios(boards, played).reshape(2, 40)
    for index, row in enumerate(record["types"].values()):
        assert row["solved"] == counts.solved[index] / 40
        assert (row["died"], row["capped"]) == (counts.died[index] / 40, counts.capped[index] / 40)
        assert row["mean_steps"] == counts.steps[index] / 40
        assert row["steps_over_shortest"] == pytest.approx(np.nanmean(ratios[index, :25]))
        assert row["steps_over_shortest"] > 1
    shares = np.asarray(counts.solved) / 40
    assert record["overall"]["solved"] == pytest.approx(shares @ [0.75, 0.25])
    error = np.sqrt((shares * (1 - shares) / 40) @ [0.75**2, 0.25**2])
    assert record["overall"]["standard_error"] == pytest.approx(error)

    given = []
    monkeypatch.setattr(win_rates, "play", lambda *args, **kwargs: given.append(kwargs) or played)
    measures.by_type(player, episodes_each=40, seed=3, cap=20, greedy=True)
    assert given == [{"cap": 20, "greedy": True}]


def test_environments_beyond_training():
    """Each differs from the larger one in one thing; all can be drawn."""
    for config, slots in ((boxworld.BRIDGE, 4), (boxworld.STANDARD, 6), (BOARD.make(), 3)):
        same, larger, longer, more = measures.beyond(config).values()
        assert same == config
        assert larger == config.replace(rows=config.rows + 2, cols=config.cols + 2)
        length = config.max_length + 1
        assert longer == larger.replace(min_length=length, max_length=length)
        assert more.min_distractors == more.max_distractors == config.max_distractors + 2
        assert more.replace(min_distractors=0, max_distractors=config.max_distractors) == larger.replace(
            traps=larger.traps + 2
        )
        assert length == slots
        for one in (larger, longer, more):
            state = jax.jit(boxworld.reset)(jax.random.key(0), one)
            assert state.grid.shape == (config.rows + 2, config.cols + 2)


def test_agents_play_beyond_training(monkeypatch):
    """An agent that goes down and right finds some Gems, and fewer on larger boards."""
    config = boxworld.STANDARD.replace(rows=5, cols=6, max_length=1, max_distractors=0, traps=0)

    def policy(params, observation):
        batch = observation.shape[:-3]
        return AgentOutput(jnp.broadcast_to(params, (*batch, 4)), jnp.zeros(batch))

    player: Any = types.SimpleNamespace(policy=policy, params=jnp.asarray([0.0, 0, 1, 1]), config=config)
    some = {name: measures.beyond(config)[name] for name in ("as in training", "larger boards")}
    monkeypatch.setattr(measures, "beyond", lambda config: some)
    found = measures.generalization(player, episodes=50, seed=2, cap=150)
    assert [*found] == [*some]
    for record, one in zip(found.values(), some.values(), strict=True):
        for_boards, for_actions = jax.random.split(jax.random.key(2))
        boards = jax.jit(boxworld.reset_batch, static_argnums=1)(for_boards, 50, one)
        played = win_rates.play(policy, player.params, boards, one, for_actions, cap=150)
        assert record["agent"]["solved"] == int(played.solved.sum()) / 50
        assert record["agent"]["episodes"] == record["chance"]["episodes"] == 50
        assert record["chance"] != record["agent"]
        assert record["board"]["rows"] == one.rows
        assert record["board"]["max_distractors"] == one.max_distractors
    assert found["as in training"]["agent"]["solved"] > found["larger boards"]["agent"]["solved"] > 0
    asked = []
    monkeypatch.setattr(
        win_rates, "play", lambda policy, *_, **given: asked.append((policy, given["greedy"])) or played
    )
    measures.generalization(player, episodes=50, seed=2, cap=150, greedy=True)
    assert asked == [(policy, True), (measures.random_policy, False)] * 2


def test_the_end_of_a_run_measures_every_seed_and_chance():
    """On the same boards for all: drawn from the training distribution, and as many of every type."""
    config = small(seed=7, board=BOARD, final_episodes=15, eval_episodes=60, eval_cap=90)
    params = weights(1, 2, 105, 4)
    board = config.board.make()
    drawn, of_types = measures.measure(config, linear, params)
    np.testing.assert_array_equal(drawn.episodes, [[30], [30]])
    np.testing.assert_array_equal(of_types.episodes, [[15, 15]] * 2)
    np.testing.assert_array_equal(of_types.puzzles, [TYPES] * 2)

    key = jax.random.key(measures.EVALUATION_SEED)
    draw = jax.jit(boxworld.reset_batch, static_argnums=1)
    boards = [
        draw(jax.random.fold_in(key, 30), 30, board),
        win_rates.boards_of(key, TYPES, 15, board),
    ]
    together = jax.tree.map(lambda *leaves: np.concatenate(leaves), *jax.device_get(boards))
    during = measures.overall(config, linear, params)
    shares = {"solved": 0.0, "died": 0.0}
    for seed in range(2):
        mine = {"weights": params["weights"][seed]}
        key = jax.random.key(measures.EVALUATION_SEED + 1)
        played = win_rates.play(linear, mine, together, board, key, cap=90)
        again = win_rates.play(linear, mine, measures._drawn(60, board), board, key, cap=90)
        for name in shares:
            ended = np.asarray(getattr(played, name))
            assert getattr(drawn, name)[seed] == ended[:30].sum()
            np.testing.assert_array_equal(getattr(of_types, name)[seed], ended[30:].reshape(2, 15).sum(1))
            shares[name] += np.asarray(getattr(again, name)).sum() / 120
    assert not np.array_equal(drawn.solved[0], drawn.solved[1])
    shares["capped"] = 1 - sum(shares.values())
    assert during == pytest.approx(shares)
    results = measures.conclude(config, linear, params)
    assert list(results) == ["agent", "seed 7", "seed 8", "chance"]
    assert results["agent"] == measures.summarize(drawn, of_types)
    assert results["seed 8"] == measures.summarize(drawn, of_types, slice(1, 2))
    chance = measures.summarize(*measures.measure(config, measures.random_policy, {"any": jnp.zeros((1, 1))}))
    assert results["chance"] == chance
    assert chance["episodes"] == 30
    assert chance["solved"] != results["agent"]["solved"]


def counts(kinds, solved, died):
    """Ten boards of each type and seed, [S, P]."""
    solved, died = jnp.asarray(solved), jnp.asarray(died)
    played = jnp.full_like(solved, 10)
    return win_rates.Evaluation(
        puzzles=jnp.broadcast_to(jnp.asarray(kinds), (*solved.shape, 3)), episodes=played, solved=solved,
        died=died, capped=played - solved - died, steps=9 * played, solved_steps=9 * solved,
    )  # fmt: skip


def test_a_summary_is_of_some_seeds():
    """Made-up counts of two seeds."""
    drawn = counts([(0, 0, 0)], [[3], [5]], [[1], [2]])
    kinds = counts([(1, 0, 0), (2, 1, 3)], [[1, 2], [3, 4]], [[0, 8], [1, 6]])
    both, second = measures.summarize(drawn, kinds), measures.summarize(drawn, kinds, slice(1, 2))
    assert (both["solved"], both["died"], both["capped"], both["episodes"]) == (0.4, 0.15, 0.45, 20)
    assert (second["solved"], second["died"], second["episodes"]) == (0.5, 0.2, 10)
    assert both["interval"] == pytest.approx(intervals.wilson_interval(8, 20))
    assert list(both["types"]) == ["1", "2-1-3"]
    assert both["types"]["2-1-3"]["solved"] == 0.3
    assert second["types"]["1"]["died"] == 0.1


def test_the_only_seed_is_not_listed_beside_the_agent(monkeypatch):
    found = counts([(0, 0, 0)], [[3]], [[1]]), counts([(1, 0, 0)], [[1]], [[0]])
    monkeypatch.setattr(measures, "measure", lambda *args: found)
    assert list(measures.conclude(small(seeds=1), linear, {})) == ["agent", "chance"]


def test_the_random_policy_prefers_nothing():
    output = measures.random_policy(None, jnp.zeros((2, 5, 7, 3), jnp.uint8))
    np.testing.assert_array_equal(output.logits, np.zeros((2, 4)))
    assert output.value.shape == (2,)
