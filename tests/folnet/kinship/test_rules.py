"""The rules are those of CLUTRR, and deduction applies them to a fixed point."""

import collections
import re

import numpy as np
import pytest

from folnet.kinship import rules
from folnet.kinship.rules import (
    COMPOSITIONS,
    EDGES,
    RELATIONS,
    RULES,
    TARGET_NAMES,
    Fact,
    compose,
    conclusions,
    deduce,
    number,
)
from tests.folnet import kinship_solver


def facts(*words: tuple[int, str, int]) -> list[Fact]:
    """Returns facts with relations by name."""
    return [Fact(x, number(name), y) for x, name, y in words]


def test_the_rules_are_the_published_ones():
    """Exactly the table in CLUTRR's words: 16 rules without gender, 62 with."""
    published = set(kinship_solver.rules())
    ours = {(RELATIONS[a], RELATIONS[b], RELATIONS[c]) for (a, b), c in COMPOSITIONS.items()}
    assert ours == published
    assert (len(RULES), len(COMPOSITIONS)) == (16, 62)


def test_relations_are_fourteen_to_tell_and_eighteen_to_ask_for():
    """Stories use the premises of rules, questions their conclusions."""
    premises = {relation for pair in COMPOSITIONS for relation in pair}
    assert {RELATIONS[relation] for relation in premises} == set(EDGES)
    assert {RELATIONS[relation] for relation in COMPOSITIONS.values()} == set(TARGET_NAMES)
    assert (len(EDGES), len(TARGET_NAMES), len(set(RELATIONS))) == (14, 18, 20)


def test_the_gender_of_a_conclusion_is_that_of_its_second_premise():
    """Odd numbers are women, as the words say."""
    women = re.compile("daughter|mother|wife|sister|aunt|niece")
    assert all(bool(women.search(name)) == bool(place % 2) for place, name in enumerate(RELATIONS))
    assert all(pair[1] % 2 == result % 2 for pair, result in COMPOSITIONS.items())


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [
        ("daughter", "brother", "son"),
        ("brother", "daughter", "niece"),
        ("wife", "father", "father-in-law"),
        ("mother", "brother", "uncle"),
        ("uncle", "son", None),
        ("son", "husband", None),
    ],
)
def test_compose(first, second, result):
    assert compose(first, second) == result


def test_unknown_relations_are_named():
    """There is no number for "cousin"."""
    with pytest.raises(ValueError, match="relation: got 'cousin', expected one of son, daughter"):
        compose("cousin", "son")


def test_a_grandmother_of_a_wifes_son_is_a_mother_or_a_mother_in_law():
    """Both follow, since the result depends on the order of composition."""
    found = deduce(facts((0, "wife", 1), (1, "son", 2), (2, "grandmother", 3)))
    assert [RELATIONS[r] for r in found.between(0, 3)] == ["mother", "mother-in-law"]
    pairs = {(RELATIONS[a], RELATIONS[b]) for a, b in found.used}
    assert pairs == {("wife", "son"), ("son", "grandmother"), ("wife", "mother")}


def test_without_a_pair_what_needs_it_does_not_follow():
    """Nor is the pair counted as used."""
    chain = facts((0, "wife", 1), (1, "son", 2), (2, "grandmother", 3))
    found = deduce(chain, without={(number("wife"), number("son"))})
    assert [RELATIONS[r] for r in found.between(0, 3)] == ["mother-in-law"]
    assert (number("wife"), number("son")) not in found.used


def test_nobody_is_their_own_relative():
    """In a cycle of facts, a father's son is a brother unless it is the person itself."""
    found = deduce(facts((0, "father", 1), (1, "son", 0), (1, "son", 2)))
    assert not any(x == y for x, _, y in found.facts)
    assert [RELATIONS[r] for r in found.between(0, 2)] == ["brother"]


def test_deduction_is_the_closure():
    """On random graphs with cycles and contradictions it equals what the solver finds."""
    generator = np.random.default_rng(0)
    graphs = []
    for _ in range(150):
        count = int(generator.integers(3, 11))
        people = generator.integers(0, 7, (count, 2))
        graphs.append([Fact(int(x), int(generator.integers(14)), int(y)) for x, y in people if x != y])
    known = kinship_solver.closure(graphs, 7)
    sizes = collections.Counter()
    for row, graph in enumerate(graphs):
        expected = {
            Fact(x, relation, y)
            for relation in range(20)
            for x in range(7)
            for y in range(7)
            if known[relation, row, x] >> y & 1
        }
        found = deduce(graph)
        assert found.facts == expected
        met = {
            (first.relation, second.relation)
            for first in expected
            for second in expected
            if first.y == second.x and first.x != second.y
        }
        assert found.used == met & set(COMPOSITIONS)
        sizes[len(expected) > len(set(graph))] += 1
    assert min(sizes[True], sizes[False]) > 10


def test_kinds_and_relations_agree():
    """A relation's number is twice its kind's, plus one for women."""
    for first, second in rules.RULES:
        assert {first, second} <= set(rules.KINDS[:7])
    assert rules.KINDS[number("uncle") // 2] == "parent's sibling"
    assert rules.KINDS[number("niece") // 2] == "sibling's child"


def test_conclusions_of_a_chain_are_what_is_deduced_between_its_ends():
    """For random chains: most compose to nothing, some to one relation, some to several."""
    generator, counts = np.random.default_rng(5), collections.Counter()
    starts = sorted(COMPOSITIONS)
    for _ in range(600):
        chain = list(starts[generator.integers(len(starts))])
        for _ in range(generator.integers(5)):  # so that more than a few compose at all
            place = int(generator.integers(len(chain)))
            pairs = [pair for pair in starts if COMPOSITIONS[pair] == chain[place]] or [(0, 1)]
            chain[place : place + 1] = pairs[generator.integers(len(pairs))]
        stated = [Fact(x, relation, x + 1) for x, relation in enumerate(chain)]
        found = conclusions(chain)
        assert found == deduce(stated).between(0, len(chain))
        counts[len(found)] += 1
    assert min(counts[0], counts[1], counts[2]) > 5
    assert conclusions([3]) == [3]
