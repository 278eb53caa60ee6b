"""Compositions: answers against loops over nodes, and graphs that are for the test under any renaming."""

import itertools

import jax
import numpy as np
import pytest

from experiments.reasoning.tasks.base import TRAIN
from experiments.reasoning.tasks.compositions import EVERY, NAMES, SIZES, Composition, Quotient
from tests import keys

COMPOSITION, QUOTIENT = Composition(), Quotient()


def drawn(task, count, split):
    return jax.device_get(task.draw(jax.random.key(0), count, split))


@pytest.mark.parametrize("split", [TRAIN, *COMPOSITION.tests])
def test_compositions_go_through_a_third_node(split):
    problems = drawn(COMPOSITION, 5, split)
    size = SIZES[split]
    for names, edges, targets in zip(problems.tokens, problems.relations == 0, problems.targets, strict=True):
        assert len(set(names.tolist())) == size <= NAMES
        for i, j in itertools.product(range(size), repeat=2):
            assert targets[i, j] == any(edges[i, k] and edges[k, j] for k in range(size))


@pytest.mark.parametrize("split", [TRAIN, *QUOTIENT.tests])
def test_quotients_go_through_two_nodes_of_one_colour(split):
    problems = drawn(QUOTIENT, 5, split)
    size = SIZES[split]
    for colours, edges, targets in zip(
        problems.tokens, problems.relations == 0, problems.targets, strict=True
    ):
        assert not edges.diagonal().any()
        assert colours.max() < SIZES[TRAIN]  # in larger graphs, too: nothing is new but the size
        pairs = [(k, n) for k, n in itertools.permutations(range(size), 2) if colours[k] == colours[n]]
        for i, j in itertools.product(range(size), repeat=2):
            answer = any(edges[i, k] and edges[j, n] for k, n in pairs)
            assert targets[i, j] == (-1 if i == j else answer)


@pytest.mark.parametrize("task", [COMPOSITION, QUOTIENT])
def test_graphs_of_the_test_are_not_in_training_under_any_name(task):
    """And in both about half of all answers are yes."""
    for split in (TRAIN, "graphs"):
        problems = drawn(task, 200, split)
        numbers = (problems.relations == 0).sum(axis=(1, 2))
        assert ((numbers % EVERY == 0) == (split != TRAIN)).all()
        assert 0.45 < problems.targets[problems.targets >= 0].mean() < 0.55
        assert set(np.unique(problems.relations)) == {-1, 0}


@pytest.mark.parametrize("task", [COMPOSITION, QUOTIENT])
def test_no_key_is_used_twice(task):
    keys.used_once(lambda key: task.draw(key, 2), jax.random.key(0))
