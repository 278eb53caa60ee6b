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


@pytest.mark.parametrize("greedy", [False, True])
def test_measured_is_what_is_played(greedy):
    """Shares are those of `win_rates.evaluate`; overall is as the environment draws its boards."""
    config = boxworld.BRIDGE.replace(max_length=1, bridge_probability=0.25)
    player: Any = types.SimpleNamespace(policy=linear, params=weights(0, 210, 4), config=config)
    each, cap = (40, 300) if not greedy else (4, 20)
    options = {"greedy": True} if greedy else {}
    counts, record = measures.by_type(player, episodes_each=each, seed=3, cap=cap, **options)
    again = jax.device_get(
        win_rates.evaluate(
            linear, player.params, config, jax.random.key(3), episodes=each, cap=cap, greedy=greedy
        )
    )
    jax.tree.map(np.testing.assert_array_equal, counts, again)
    assert list(record["types"]) == ["L = 1, no bridge", "(1,1,2)"]
    if greedy:
        return
    assert (counts.solved > 0).all()
    assert (counts.solved < 40).all()
    for_boards, for_actions = jax.random.split(jax.random.key(3))
    boards = win_rates.boards_of(for_boards, [(1, 0, 0), (1, 1, 2)], 40, config)
    played = win_rates.play(linear, player.params, boards, config, for_actions, cap=cap)
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


def test_the_end_of_a_run_measures_every_seed_and_chance():
    """On the same boards for all: drawn from the training distribution, and as many of every type."""
    config = small(seed=7, board=BOARD, final_episodes=30, eval_episodes=60, eval_cap=90)
    params = weights(1, 2, 105, 4)
    board = config.board.make()
    drawn, of_types = measures.measure(config, linear, params)
    np.testing.assert_array_equal(drawn.episodes, [[60], [60]])
    np.testing.assert_array_equal(of_types.episodes, [[30, 30]] * 2)
    np.testing.assert_array_equal(of_types.puzzles, [TYPES] * 2)

    key = jax.random.key(measures.EVALUATION_SEED)
    boards = [
        boxworld.reset_batch(jax.random.fold_in(key, 60), 60, board),
        win_rates.boards_of(key, TYPES, 30, board),
    ]
    together = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *boards)
    for seed in range(2):
        played = win_rates.play(
            linear,
            {"weights": params["weights"][seed]},
            together,
            board,
            jax.random.key(measures.EVALUATION_SEED + 1),
            cap=90,
        )
        for name in ("solved", "died"):
            ended = np.asarray(getattr(played, name))
            assert getattr(drawn, name)[seed] == ended[:60].sum()
            np.testing.assert_array_equal(getattr(of_types, name)[seed], ended[60:].reshape(2, 30).sum(1))
    assert not np.array_equal(drawn.solved[0], drawn.solved[1])

    during = measures.overall(config, linear, params)  # the same boards and actions
    assert during == {
        name: pytest.approx(getattr(drawn, name).sum() / 120) for name in ("solved", "died", "capped")
    }
    results = measures.conclude(config, linear, params)
    assert list(results) == ["agent", "seed 7", "seed 8", "chance"]
    assert results["agent"] == measures.summarize(drawn, of_types)
    assert results["seed 8"] == measures.summarize(drawn, of_types, slice(1, 2))
    chance = measures.summarize(*measures.measure(config, measures.random_policy, {"any": jnp.zeros((1, 1))}))
    assert results["chance"] == chance
    assert chance["episodes"] == 60
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


def test_the_random_policy_prefers_nothing():
    output = measures.random_policy(None, jnp.zeros((2, 5, 7, 3), jnp.uint8))
    np.testing.assert_array_equal(output.logits, np.zeros((2, 4)))
    assert output.value.shape == (2,)
