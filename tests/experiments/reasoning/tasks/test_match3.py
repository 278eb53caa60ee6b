"""Match3: answers against a search over all triples, and what training never asks about."""

import itertools

import jax
import numpy as np
import pytest

from experiments.reasoning.tasks.base import TRAIN
from experiments.reasoning.tasks.match3 import HELD_OUT, MODULUS, SIZES, Match3, table
from tests import keys

TASK = Match3()
APART = table()


def triples_of(row: np.ndarray, place: int) -> list[tuple[int, ...]]:
    """All triples of values with this element that sum to 0."""
    others = [i for i in range(len(row)) if i != place]
    found = [(row[place], row[i], row[j]) for i, j in itertools.combinations(others, 2)]
    return [triple for triple in found if sum(triple) % MODULUS == 0]


@pytest.mark.parametrize("split", [TRAIN, *TASK.tests])
def test_an_element_is_right_if_it_completes_a_triple(split):
    """Only the split "triples" asks about triples that are held out, and about no others.

    It leaves some elements without a triple out.
    """
    problems = jax.device_get(TASK.draw(jax.random.key(0), 30, split))
    assert problems.tokens.shape == problems.targets.shape == (30, SIZES[split])
    seen = set()
    for row, targets in zip(problems.tokens.astype(int), problems.targets, strict=True):
        for place, target in enumerate(targets):
            found = triples_of(row, place)
            apart = [APART[triple] for triple in found]
            asked = all(apart) if split == "triples" else not any(apart)
            right = {bool(found) if asked else -1}
            assert target in right | ({-1} if split == "triples" and not found else set()), (row, place)
            seen.add(int(target))
    assert seen == {-1, 0, 1}


def test_values_say_nothing_about_what_is_held_out():
    """Of the pairs that complete a value, in any order, as many are for the test, whichever the value."""
    every = [triple for triple in itertools.product(range(MODULUS), repeat=3) if sum(triple) % MODULUS == 0]
    assert {triple for triple in every if APART[triple]} == {
        order for triple in HELD_OUT for order in itertools.permutations(triple)
    }
    assert APART.sum() == 6 * len(HELD_OUT)
    for value in range(MODULUS):
        assert sum(APART[triple] for triple in every if triple[0] == value) == 6
        assert sum(value in triple for triple in HELD_OUT) == 3


def test_answers_are_as_frequent_in_the_test_as_in_training():
    """Nearly half of them are yes."""
    train, sets, triples = (
        np.asarray(TASK.draw(jax.random.key(1), 4000, split).targets) for split in (TRAIN, "sets", "triples")
    )
    yes, of_sets, of_triples = (found[found >= 0].mean() for found in (train, sets, triples))
    assert abs(yes - 0.464) < 0.02
    assert abs(of_sets - yes) < 0.02
    assert abs(of_triples - yes) < 0.02


@pytest.mark.parametrize("split", [TRAIN, "triples"])
def test_no_key_is_used_twice(split):
    keys.used_once(lambda key: TASK.draw(key, 2, split), jax.random.key(0))
