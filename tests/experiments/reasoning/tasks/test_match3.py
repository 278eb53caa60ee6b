"""Match3: answers against a search over all triples, and what training never asks about."""

import itertools

import jax
import numpy as np
import pytest

from experiments.reasoning.tasks.base import TRAIN
from experiments.reasoning.tasks.match3 import MODULUS, SIZES, Match3, is_held_out
from tests import keys

TASK = Match3()


def triples_of(row: np.ndarray, place: int) -> list[tuple[int, ...]]:
    """All triples of values with this element that sum to 0."""
    others = [i for i in range(len(row)) if i != place]
    found = [(row[place], row[i], row[j]) for i, j in itertools.combinations(others, 2)]
    return [triple for triple in found if sum(triple) % MODULUS == 0]


@pytest.mark.parametrize("split", [TRAIN, *TASK.tests])
def test_an_element_is_right_if_it_completes_a_triple(split):
    """Only the split "triples" asks about triples that are held out, and about no others."""
    problems = jax.device_get(TASK.draw(jax.random.key(0), 30, split))
    assert problems.tokens.shape == problems.targets.shape == (30, SIZES[split])
    seen = set()
    for row, targets in zip(problems.tokens.astype(int), problems.targets, strict=True):
        for place, target in enumerate(targets):
            found = triples_of(row, place)
            apart = [is_held_out(*triple) for triple in found]
            asked = all(apart) if split == "triples" else not any(apart)
            assert target == (bool(found) if asked else -1), (row, place)
            seen.add(int(target))
    assert seen == {-1, 0, 1}


def test_triples_are_held_out_whatever_their_order():
    """A fifth to a third of those that sum to 0."""
    every = [triple for triple in itertools.product(range(MODULUS), repeat=3) if sum(triple) % MODULUS == 0]
    apart = [triple for triple in every if is_held_out(*triple)]
    assert {tuple(sorted(triple)) for triple in apart}.isdisjoint(
        tuple(sorted(triple)) for triple in set(every) - set(apart)
    )
    assert 0.15 < len(apart) / len(every) < 0.35


def test_no_key_is_used_twice():
    keys.used_once(lambda key: TASK.draw(key, 2), jax.random.key(0))
