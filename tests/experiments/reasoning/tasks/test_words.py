"""Sequences are those of `llrnn.tasks`, at the lengths of training and of the tests."""

import jax
import numpy as np
import pytest

from experiments.reasoning.tasks.words import ModularArithmetic, Words
from llrnn import tasks
from tests import keys


@pytest.mark.parametrize("task", [Words(), ModularArithmetic()])
def test_tests_are_of_one_length_and_training_of_many(task):
    source = tasks.make(task.source)
    for split in task.tests:
        problems = task.draw(jax.random.key(0), 3, split)
        batch = source.sample(jax.random.key(0), 3, int(split))
        np.testing.assert_array_equal(problems.tokens, batch.tokens[..., 0])
        np.testing.assert_array_equal(problems.targets, np.where(batch.mask, batch.targets, -1))
    lengths = set()
    for seed in range(60):
        problems = task.draw(jax.random.key(seed), 1)
        lengths.add(int(np.flatnonzero(problems.targets[0] >= 0).max()))
    last = source.steps(task.lengths[1])
    assert problems.tokens.shape == (1, last)
    assert len(lengths) > 8
    assert last - 4 < max(lengths) < last
    assert problems.tokens.max() < task.vocabulary
    assert problems.targets.max() < task.classes


def test_no_key_is_used_twice():
    keys.used_once(lambda key: Words().draw(key, 2), jax.random.key(0))
