"""Looped FOLNets on graphs: the model, its loss and its measure."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from experiments.reasoning import graphs, train
from experiments.reasoning.config import get_config
from experiments.reasoning.tasks.paths import NAMES
from tests.simplicial.small import parameters, quickly

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SMALL = dataclasses.replace(
    get_config("distances"), features=8, num_heads=2, hidden=8, relations=4, loops=2, length=6, batch_size=3,
    steps=4, log_every=2, checkpoint_every=4, eval_every=4, warmup_steps=1, schedule_steps=4,
)  # fmt: skip


@pytest.fixture(scope="module")
def made() -> tuple[Any, Any, Any]:
    """The compiled model, its variables and a batch."""
    model = graphs.make_model(SMALL)
    batch = jax.device_get(graphs.draw(jax.random.key(1), 3, 6))
    return quickly(model.apply), parameters(model, *batch[:2]), batch


def test_the_numbers_of_nodes_say_nothing(made):
    apply, variables, (names, edges, _) = made
    order = np.random.default_rng(0).permutation(6)
    plain = apply(variables, names, edges)
    turned = apply(variables, names[:, order], edges[:, order][:, :, order])
    np.testing.assert_allclose(turned, plain[:, order][:, :, order], rtol=1e-4, atol=1e-5)
    assert np.abs(plain[:, order] - plain).max() > 1e-3


def test_edges_are_one_relation_and_being_the_same_node_is_another(monkeypatch):
    """Of nodes without an edge nothing is given."""
    seen = []

    def looped(config, loops, injection):
        assert (loops, injection) == (2, 0.5)
        states = [(None, jnp.full((1, 4, 3, 3), state)) for state in (3.0, 5.0)]
        return lambda names, relation_ids: seen.append(relation_ids) or states

    monkeypatch.setattr(graphs, "LoopedFOLNet", looped)
    params = {"Dense_0": {"kernel": np.ones((4, 5), np.float32), "bias": np.zeros(5, np.float32)}}
    edges = np.array([[[0, 1, 0], [0, 0, 1], [1, 1, 0]]], bool)
    found = graphs.make_model(SMALL).apply({"params": params}, np.arange(3)[None], edges)
    np.testing.assert_array_equal(found, np.full((1, 3, 3, 5), 4 * 5.0))  # of the last loop
    assert np.asarray(seen[0]).tolist() == [[[1, 0, -1], [-1, 1, 0], [0, 0, 1]]]


def test_the_loss_is_the_mean_over_pairs_of_different_nodes(made):
    apply, variables, (names, edges, answers) = made
    state = train.abstract_state(SMALL)  # the task chooses what is trained
    shapes = jax.tree.map(lambda leaf: leaf.shape, variables["params"])
    assert jax.tree.map(lambda leaf: leaf.shape, state.params) == shapes
    loss = quickly(graphs.problem(SMALL)["loss"])
    batch = {"names": names, "edges": edges, "answers": answers}
    sums = loss(variables["params"], batch, None)
    logs = log_softmax(apply(variables, names, edges), axis=-1)
    places = np.argwhere(answers >= 0)
    each = [logs[row, x, y, answers[row, x, y]] for row, x, y in places]
    assert sums.denominator == len(places) == 3 * 6 * 5
    assert sums.numerator == pytest.approx(-np.sum(each), rel=1e-5)
    right = [logs[row, x, y].argmax() == answers[row, x, y] for row, x, y in places]
    assert [float(part) for part in sums.metrics["accuracy"]] == [sum(right), len(places)]


def test_the_measure_weighs_all_answers_alike(monkeypatch):
    """A model that always gives one answer is right in a fifth, however often that is the answer."""
    monkeypatch.setattr(graphs, "TESTED", (6, 9))
    monkeypatch.setattr(graphs, "TEST_GRAPHS", 8)

    class Constant:
        def apply(self, variables, names, edges):
            del variables, names
            return jnp.broadcast_to(jnp.arange(5.0), (*edges.shape, 5))

    monkeypatch.setattr(graphs, "make_model", lambda config: Constant())
    found = graphs.make_evaluate(SMALL)({})
    assert found == {"right/6": pytest.approx(0.2), "right/9": pytest.approx(0.2)}


@pytest.mark.slow  # its loss, its measure and the model have cheaper tests
def test_a_run_trains_and_measures(tmp_path, monkeypatch):
    monkeypatch.setattr(graphs, "TESTED", (6,))
    result = train.main(SMALL, workdir=tmp_path)
    assert set(result.metrics) >= {"eval/right/6", "loss", "accuracy"}
    assert result.results == {"parameters": sum(leaf.size for leaf in jax.tree.leaves(result.params))}
    shapes = jax.tree.map(lambda leaf: leaf.shape, train.abstract_state(SMALL).params)
    assert shapes == jax.tree.map(lambda leaf: leaf.shape, result.params)


def test_a_graph_may_have_all_names_and_a_head_one_feature():
    dataclasses.replace(SMALL, length=NAMES).validate()
    sizes = [dataclasses.replace(SMALL, num_heads=heads).folnet().head_size for heads in (2, 16)]
    assert sizes == [4, 1]
    assert not SMALL.folnet().absolute_position  # the numbers of nodes say nothing


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"task": "sudoku"},
            "task: got 'sudoku', expected one of 'language', 'distances', 'bridges', 'published",
        ),
        ({"length": 3}, "length: got 3, expected at least 4"),
        ({"length": 49}, "length: got 49, expected at most 48 nodes"),
        ({"loops": 0}, "loops: got 0, expected at least 1"),
        ({"relations": 0}, "relations: got 0, expected at least 1"),
        ({"operators": "x.t"}, "operators: got 'x.t', expected"),
    ],
)
def test_fields_are_checked(fields: dict[str, Any], message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **fields).validate()
