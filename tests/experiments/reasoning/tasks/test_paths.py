"""Shortest paths, against a search in NumPy."""

import jax
import numpy as np

from experiments.reasoning import graphs
from experiments.reasoning.tasks import paths
from experiments.reasoning.tasks.base import TRAIN
from tests import keys


def test_no_key_is_used_twice():
    keys.used_once(lambda key: paths.draw(key, 2, 6), jax.random.key(0))


def test_answers_are_lengths_of_shortest_paths():
    """Against breadth-first search from every node; each graph has all kinds of answers in the end."""
    names, edges, answers = map(np.asarray, paths.draw(jax.random.key(0), 20, 12))
    assert (edges.sum(axis=2) == paths.SUCCESSORS).all()
    for row in range(20):
        assert len(set(names[row])) == 12
        for start in range(12):
            length, reached, found = 0, {start}, {start: -1}
            while len(found) < 12:
                length += 1
                reached = {int(y) for x in reached for y in np.flatnonzero(edges[row, x])} - set(found)
                found |= dict.fromkeys(reached, min(length, 5) - 1)
                if not reached:
                    found |= {y: 4 for y in range(12) if y not in found}
            assert [found[y] for y in range(12)] == answers[row, start].tolist()
    assert set(answers.ravel()) == {-1, 0, 1, 2, 3, 4}
    assert max(graphs.TESTED) <= paths.NAMES
    assert names.max() == paths.NAMES - 1  # the names of larger graphs occur in small ones


def test_an_edge_is_a_relation_and_its_answer_is_one_step():
    for split in (TRAIN, *paths.Paths.tests):
        problems = jax.device_get(paths.Paths().draw(jax.random.key(1), 4, split))
        size = paths.SIZES[split]
        assert problems.tokens.shape == (4, size)
        np.testing.assert_array_equal(problems.relations == 0, problems.targets == 0)
        np.testing.assert_array_equal(problems.targets == -1, np.eye(size, dtype=bool)[None].repeat(4, 0))
        assert set(np.unique(problems.relations)) == {-1, 0}
