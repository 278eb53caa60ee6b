"""Measures of agents: counts are of the boards that were played, however they are grouped."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.boxworld import measures
from simplicial import win_rates
from tests.experiments.boxworld.player import few_types

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.slow
def test_measured_is_what_is_played():
    """Shares are those of `win_rates.evaluate`; overall is as the environment draws its boards."""
    player = few_types()
    counts, record = measures.by_type(player, episodes_each=40, seed=3, cap=150)
    again = jax.device_get(
        win_rates.evaluate(
            player.policy, player.params, player.config, jax.random.key(3), episodes=40, cap=150
        )
    )
    jax.tree.map(np.testing.assert_array_equal, counts, again)
    assert 0 < counts.solved[0] < 40
    row = record["types"]["L = 1, no bridge"]
    assert row["solved"] == counts.solved[0] / 40
    assert row["mean_steps"] == counts.steps[0] / 40
    assert row["steps_over_shortest"] > 1
    shares = counts.solved / 40
    assert record["overall"]["solved"] == pytest.approx(shares.mean())
    error = np.sqrt((shares * (1 - shares)).sum() / 40) / 2
    assert record["overall"]["standard_error"] == pytest.approx(error)


def counts(types, solved, died):
    """Ten boards of each type and seed, [S, P]."""
    solved, died = jnp.asarray(solved), jnp.asarray(died)
    played = jnp.full_like(solved, 10)
    return win_rates.Evaluation(
        puzzles=jnp.broadcast_to(jnp.asarray(types), (*solved.shape, 3)), episodes=played, solved=solved,
        died=died, capped=played - solved - died, steps=9 * played, solved_steps=9 * solved,
    )  # fmt: skip


def test_a_summary_is_of_some_seeds():
    """Made-up counts of two seeds."""
    drawn = counts([(0, 0, 0)], [[3], [5]], [[1], [2]])
    types = counts([(1, 0, 0), (2, 1, 3)], [[1, 2], [3, 4]], [[0, 8], [1, 6]])
    both, second = measures.summarize(drawn, types), measures.summarize(drawn, types, slice(1, 2))
    assert (both["solved"], both["died"], both["capped"], both["episodes"]) == (0.4, 0.15, 0.45, 20)
    assert (second["solved"], second["died"], second["episodes"]) == (0.5, 0.2, 10)
    assert both["interval"][0] < 0.4 < both["interval"][1]
    assert list(both["types"]) == ["1", "2-1-3"]
    assert both["types"]["2-1-3"]["solved"] == 0.3
    assert second["types"]["1"]["died"] == 0.1


def test_the_random_policy_prefers_nothing():
    output = measures.random_policy(None, jnp.zeros((2, 5, 7, 3), jnp.uint8))
    np.testing.assert_array_equal(output.logits, np.zeros((2, 4)))
    assert output.value.shape == (2,)
