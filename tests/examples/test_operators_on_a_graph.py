"""The example of operators on graphs: its distances, a short run, and the result of a full run."""

import jax
import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path

from examples import operators_on_a_graph as example
from tests.examples import small_example
from tests.simplicial.small import quickly


@pytest.mark.slow  # seconds of compiling
@pytest.mark.usefixtures("compiled_quickly")
def test_a_short_run_is_complete(tmp_path, monkeypatch):
    monkeypatch.setattr(example, "MIXERS", ("trans",))  # both are compiled by the slow test
    monkeypatch.setattr(example, "ASKED", (12,))
    monkeypatch.setattr(example, "SHOWN", 12)
    numbers = example.main(["--steps=2", f"--out={tmp_path}"])
    small_example.complete(numbers, tmp_path, "graph.png")
    for shares in numbers["looks"].values():
        np.testing.assert_allclose(sum(shares), 1, atol=1e-5)


def test_distances_are_those_of_shortest_paths():
    for graph, found in zip(*quickly(lambda key: example.draw(key, 3, 20))(jax.random.key(2)), strict=True):
        assert (graph.sum(axis=1) == example.SUCCESSORS).all()
        assert not graph.diagonal().any()
        distance = shortest_path(graph.astype(float), unweighted=True)
        np.testing.assert_array_equal(found, np.minimum(distance, example.FURTHEST) - 1)


@pytest.mark.slow
def test_trans_carries_over_to_graphs_four_times_as_large(tmp_path):
    numbers = small_example.run("operators_on_a_graph", tmp_path)
    assert numbers["trans"]["right"]["12"] > 0.98
    assert numbers["trans"]["right"]["48"] > 0.9
    assert numbers["join, assoc"]["right"]["48"] < 0.8
