"""The published setting of composed relations: its graphs, the Transformer, the loss and the measure."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, softmax

from experiments.reasoning import published, train
from experiments.reasoning.config import get_config
from experiments.reasoning.published import Relations
from tests.simplicial.small import parameters, quickly

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SMALL = dataclasses.replace(
    get_config("published_composition"), features=4, num_heads=2, batch_size=6, accumulate=1
)


@pytest.fixture(scope="module")
def drawn() -> Relations:
    return jax.device_get(quickly(published.graphs)(np.arange(300)))


def test_graphs_have_six_to_eight_nodes_and_are_numbered(drawn):
    """The edges are as likely as published, and a number's graph depends on nothing else."""
    sizes = [int(np.diagonal(asked).sum()) for asked in drawn.asked]
    assert {size: sizes.count(size) > 70 for size in sizes} == {6: True, 7: True, 8: True}
    for edges, asked, size in zip(drawn.edges, drawn.asked, sizes, strict=True):
        assert asked[:size, :size].all()
        assert asked.sum() == size**2
        assert not edges[~asked].any()
    assert np.mean(drawn.edges[drawn.asked]) == pytest.approx(0.325, abs=0.01)
    again = quickly(published.graphs)(np.array([17, 4]))
    np.testing.assert_array_equal(again.edges, drawn.edges[[17, 4]])


def test_a_path_of_two_edges_is_the_answer(drawn):
    """And as often as independent edges make it, which the paper calls balanced."""
    answers = np.asarray(drawn.answers)
    for edges, answer in zip(drawn.edges[:20], answers, strict=False):
        paths = [[any(edges[i] & edges[:, j]) for j in range(8)] for i in range(8)]
        np.testing.assert_array_equal(answer, paths)
    sizes = np.array([6, 7, 8])
    yes = 1 - (1 - 0.325**2) ** sizes
    assert np.mean(answers[drawn.asked]) == pytest.approx(np.average(yes, weights=sizes**2), abs=0.03)


@pytest.fixture(scope="module")
def made(drawn) -> tuple[Any, Any, Relations]:
    """The compiled model, its parameters and six graphs, of which some are small."""
    batch = jax.tree.map(lambda leaf: leaf[:6], drawn)
    assert not batch.asked.all()
    model = published.make_model(SMALL)
    return (
        quickly(lambda params, batch: model.apply({"params": params}, batch)),
        parameters(model, batch)["params"],
        batch,
    )


def by_hand(params, edges, size):
    """The Transformer on one graph without padding, in NumPy."""

    def linear(name, states):
        return states @ params[name]["kernel"] + params[name].get("bias", 0)

    row, column, kind = (params[name]["embedding"] for name in ("row", "column", "edges"))
    states = np.stack(
        [
            kind[int(edges[i, j])] + np.concatenate([row[i], column[j]])
            for i in range(size)
            for j in range(size)
        ]
    )
    for layer in range(2):
        parts = linear(f"attention{layer}", states).reshape(size**2, 3, 2, 2)  # two heads of two features
        query, key, value = parts.transpose(1, 2, 0, 3)
        weights = softmax(query @ key.swapaxes(1, 2) / np.sqrt(2), axis=-1)
        states = states + (weights @ value).transpose(1, 0, 2).reshape(states.shape)
        hidden = states
        for depth in range(3):
            hidden = np.maximum(linear(f"forward{layer}_{depth}", hidden), 0)
        states = states + hidden
    return linear("answer", np.maximum(linear("hidden", states), 0)).reshape(size, size)


def test_the_transformer_sees_the_pairs_that_exist(made):
    """Without normalization; every other part has a residual connection."""
    apply, params, batch = made
    logits = apply(params, batch)
    for found, edges, asked in zip(logits, batch.edges, batch.asked, strict=True):
        size = int(np.diagonal(asked).sum())
        np.testing.assert_allclose(found[:size, :size], by_hand(params, edges, size), rtol=1e-4, atol=1e-5)


def test_the_loss_is_the_mean_cross_entropy_of_the_pairs_that_exist(made, monkeypatch):
    apply, params, batch = made
    monkeypatch.setattr(published, "DROPOUT", 0.0)
    sums = quickly(published.problem(SMALL)["loss"])(params, batch, jax.random.key(0))
    logits, answers = apply(params, batch), np.asarray(batch.answers)
    likely = np.where(answers, expit(logits), expit(-logits))[batch.asked]
    assert sums.denominator == batch.asked.sum() == len(likely)
    assert sums.numerator == pytest.approx(-np.log(likely).sum(), rel=1e-5)
    assert [int(part) for part in sums.metrics["accuracy"]] == [(likely > 0.5).sum(), len(likely)]


def test_training_drops_states_out(made):
    """Each key others."""
    _, params, batch = made
    loss = quickly(published.problem(SMALL)["loss"])
    first, again, other = (loss(params, batch, jax.random.key(key)).numerator for key in (0, 0, 1))
    assert first == again != other


def test_held_out_graphs_are_not_trained_on(monkeypatch):
    """And all of them are measured, each pair once."""
    monkeypatch.setattr(published, "graphs", lambda numbers: numbers)
    numbers = quickly(published.problem(dataclasses.replace(SMALL, batch_size=500_000))["sample"])(
        jax.random.key(0), 0
    )
    assert (numbers.min(), numbers.max()) == (0, published.TRAINED - 1)
    seen = []

    class Constant:
        def apply(self, variables, batch):
            del variables
            return jnp.ones(batch.edges.shape)

    def of_two_nodes(numbers):
        seen.append(numbers.shape)
        edges = jnp.broadcast_to((numbers % 4 == 0)[:, None, None], (len(numbers), 2, 2))
        return Relations(edges, edges | (jnp.arange(2) == 0)[None, :, None])

    monkeypatch.setattr(published, "graphs", of_two_nodes)
    monkeypatch.setattr(published, "make_model", lambda config: Constant())
    found = published.make_evaluate(SMALL)({})
    # A quarter of the graphs has four pairs, all of them right; the others have two, all of them wrong.
    assert found == {"right": pytest.approx(4 / (4 + 3 * 2))}
    assert set(seen) == {(500,)}


def test_the_preset_has_the_published_sizes():
    config = get_config("published_composition")
    params = jax.eval_shape(train.problem(config)["init"], jax.random.key(0))
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert round(count / 1000, 1) == 3.6
    assert config.steps * config.batch_size == 200 * published.TRAINED
    with pytest.raises(ValueError, match="num_heads: got 3, expected a divisor of features=16"):
        dataclasses.replace(config, num_heads=3).validate()
