"""RCC-8: the composition table, and answers against closing the given relations under it."""

import itertools

import jax
import numpy as np
import pytest

from experiments.reasoning.tasks import rcc8
from experiments.reasoning.tasks.base import TRAIN
from tests import keys

TASK = rcc8.RCC8()
DC, EC, PO, TPP, NTPP, TPPI, NTPPI, EQ = range(8)
INVERSE = (DC, EC, PO, TPPI, NTPPI, TPP, NTPP, EQ)


def test_the_table_is_the_published_one():
    """It has 193 triples (Bennett 1994), is closed under inverses, and composes as is known."""
    table = rcc8.table()
    assert table.sum() == 193
    turned = table[np.ix_(INVERSE, INVERSE, INVERSE)].transpose(1, 0, 2)  # the inverse of r s is s' r'
    np.testing.assert_array_equal(table, turned)
    np.testing.assert_array_equal(table[EQ], np.eye(8, dtype=bool))
    assert table[DC, DC].all()
    for first, second, result in (
        (NTPP, NTPP, {NTPP}), (TPP, NTPP, {NTPP}), (TPP, TPP, {TPP, NTPP}), (TPP, DC, {DC}),
        (NTPP, EC, {DC}), (TPP, EC, {DC, EC}), (EC, NTPPI, {DC}), (TPPI, TPP, {PO, TPP, TPPI, EQ}),
        (EC, NTPP, {PO, TPP, NTPP}), (NTPPI, NTPP, {PO, TPP, NTPP, TPPI, NTPPI, EQ}),
    ):  # fmt: skip
        assert set(np.flatnonzero(table[first, second])) == result, (first, second)


@pytest.mark.parametrize(
    ("first", "second", "relation"),
    [
        (0b00011, 0b11000, DC), (0b00011, 0b01100, EC), (0b00011, 0b00110, PO), (0b00011, 0b00111, TPP),
        (0b00100, 0b01110, NTPP), (0b00111, 0b00011, TPPI), (0b01110, 0b00100, NTPPI), (0b101, 0b101, EQ),
        (0b00001, 0b00011, TPP),  # at the end of the line
    ],
)  # fmt: skip
def test_relations_of_regions(first, second, relation):
    assert rcc8.related(first, second) == relation
    assert rcc8.related(second, first) == INVERSE[relation]


def closed(relations: np.ndarray) -> np.ndarray:
    """What may hold between two regions, [N, N, 8], after composing until nothing changes."""
    size, table = len(relations), rcc8.table()
    open_ = np.ones((size, size, 8), bool)
    for i, j in itertools.product(range(size), repeat=2):
        if relations[i, j] >= 0:
            open_[i, j] = np.eye(8, dtype=bool)[relations[i, j]]
            open_[j, i] = np.eye(8, dtype=bool)[INVERSE[relations[i, j]]]
    while True:
        before = open_.copy()
        for i, j, k in itertools.product(range(size), repeat=3):
            if i not in (j, k) and j != k:
                open_[i, k] &= np.einsum("r,s,rst->t", open_[i, j], open_[j, k], table) > 0
        if (before == open_).all():
            return open_


@pytest.mark.parametrize("split", [TRAIN, "2", "4"])
def test_an_answer_is_what_is_left_open(split):
    """An oracle: path consistency leaves one relation of every pair that is asked about."""
    problems = jax.device_get(TASK.draw(jax.random.key(0), 4, split))
    for names, relations, targets in zip(problems.tokens, problems.relations, problems.targets, strict=True):
        assert len(set(names.tolist())) == len(names)
        left = closed(relations)
        assert targets[0, 1] >= 0
        for i, j in np.argwhere(targets >= 0):
            assert relations[i, j] == -1
            assert np.flatnonzero(left[i, j]).tolist() == [targets[i, j]]
        if split != TRAIN:
            assert (targets >= 0).sum() == 1
            assert (relations >= 0).sum() == 2 * int(split)


def test_answers_are_equally_likely_and_chains_are_long_and_short():
    problems = jax.device_get(TASK.draw(jax.random.key(1), 700))
    counts = np.bincount(problems.targets[:, 0, 1], minlength=TASK.classes)
    assert len(counts) == TASK.classes == EQ
    assert counts.min() > 50
    facts = (problems.relations >= 0).sum(axis=(1, 2))
    assert set(facts.tolist()) == {4, 6}
    assert 0.4 < (facts == 4).mean() < 0.6
    assert ((problems.targets >= 0).sum(axis=(1, 2)) > 1).any()  # parts of chains


def test_all_chains_with_an_answer_are_equally_likely():
    """Of two relations each, against all pairs of chains."""
    table, counts = rcc8.table(), {}
    for path in itertools.product(range(7), repeat=4):
        left = table[path[0], path[1]] & table[path[2], path[3]]
        if left.sum() == 1 and left[TPP]:
            counts[path] = 0
    problems = jax.device_get(TASK.draw(jax.random.key(2), 7 * 40 * len(counts), "2"))
    for relations, targets in zip(problems.relations, problems.targets, strict=True):
        if targets[0, 1] == TPP:
            counts[tuple(int(relations[pair]) for pair in ((0, 2), (2, 1), (0, 3), (3, 1)))] += 1
    found = np.array([*counts.values()])
    assert found.min() > 0
    expected = found.sum() / len(found)
    assert ((found - expected) ** 2 / expected).sum() < len(found) + 5 * np.sqrt(
        2 * len(found)
    )  # chi squared


def test_no_key_is_used_twice():
    keys.used_once(lambda key: TASK.draw(key, 2), jax.random.key(0))
