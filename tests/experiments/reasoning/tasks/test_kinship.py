"""Kinship: answers against `folnet.kinship`, which composes chains in any order."""

import jax
import numpy as np
import pytest

from experiments.reasoning.tasks import kinship
from experiments.reasoning.tasks.base import TRAIN
from folnet.kinship.rules import NUM_EDGES, TARGETS, conclusions
from tests import keys

TASK = kinship.Kinship()


@pytest.mark.parametrize("split", [TRAIN, *TASK.tests])
def test_an_answer_is_the_only_relation_that_follows(split):
    problems = jax.device_get(TASK.draw(jax.random.key(0), 40, split))
    lengths = set()
    for names, relations, targets in zip(problems.tokens, problems.relations, problems.targets, strict=True):
        assert len(set(names.tolist())) == len(names)
        facts = np.argwhere(relations >= 0)
        length = len(facts)
        lengths.add(length)
        assert facts.tolist() == [[place, place + 1] for place in range(length)]
        chain = [int(relations[place, place + 1]) for place in range(length)]
        assert max(chain) < NUM_EDGES
        assert targets[0, length] >= 0
        for first in range(len(names)):
            for second in range(len(names)):
                found = conclusions(chain[first:second]) if first + 1 < second <= length else []
                asked = len(found) == 1 and (split == TRAIN or (first, second) == (0, length))
                assert targets[first, second] == (TARGETS.index(found[0]) if asked else -1)
    least, most = kinship.LENGTHS[split]
    assert lengths == set(range(least, most + 1))


def test_all_answers_occur():
    problems = jax.device_get(TASK.draw(jax.random.key(1), 400, "3"))
    counts = np.bincount(problems.targets[:, 0, 3], minlength=len(TARGETS))
    assert counts.min() > 5


def test_more_than_one_relation_may_follow():
    """Then nothing is asked about the ends of the chain."""
    chains = [chain for chain in np.ndindex(*(NUM_EDGES,) * 3) if len(conclusions(chain)) > 1]
    chain = np.asarray(chains[0])
    found = np.asarray(kinship.follows(jax.numpy.asarray(chain)))
    assert np.flatnonzero(found[0, 3]).tolist() == conclusions(chain.tolist())


def test_no_key_is_used_twice():
    keys.used_once(lambda key: TASK.draw(key, 2), jax.random.key(0))
