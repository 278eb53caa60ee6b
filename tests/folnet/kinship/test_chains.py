"""Chains: true in their family, expanded by the rules, with the given pairs avoided or included."""

import collections

import numpy as np
import pytest

from folnet.kinship.chains import Chain, add_distractors, draw_target, expand, stream
from folnet.kinship.families import Family, listed, tree
from folnet.kinship.rules import COMPOSITIONS, RELATIONS, TARGETS, Fact, Step, deduce, number

TREE = tree(3, 3)


@pytest.fixture(scope="module")
def chains() -> list[tuple[Family, Fact, Chain]]:
    """Draws chains of six facts."""
    uniform = stream(np.random.default_rng(2))
    found = []
    while len(found) < 150:
        family = TREE.draw(uniform, 0.8)
        target = draw_target(uniform, TREE, family, TARGETS[len(found) % 18], 6)
        chain = expand(uniform, TREE, family, target, 6) if target else None
        if target and chain:
            found.append((family, target, chain))
    return found


def test_stream_is_the_generators_numbers():
    """Numbers keep their order across blocks, without end."""
    uniform = stream(np.random.default_rng(3))
    numbers = [uniform() for _ in range(300)]
    assert numbers == np.random.default_rng(3).random(300).tolist()


def test_chains_are_true_in_their_family(chains):
    """All facts and all conclusions of the proof are true."""
    for family, target, chain in chains:
        assert len(chain.facts) == 6
        for fact in (*chain.facts, *(step.conclusion for step in chain.proof)):
            assert fact.relation == TREE.relation(fact.x, fact.y, family)
        assert chain.proof[-1].conclusion == target
        people = {person for fact in chain.facts for person in (fact.x, fact.y)}
        assert people == set(listed(chain.people)) <= set(listed(family.members))
        assert len(people) == 7
        for first, second, conclusion in chain.proof:
            assert COMPOSITIONS[first.relation, second.relation] == conclusion.relation


def test_any_fact_may_be_expanded(chains):
    """The first, last and inner facts are expanded, so proofs have all shapes."""
    shapes = collections.Counter()
    for _, target, chain in chains:
        last = chain.proof[-1]
        assert target == last.conclusion
        stated = last.first in chain.facts, last.second in chain.facts
        shapes[{(True, False): "left", (False, True): "right"}.get(stated, "both")] += 1
    assert min(shapes[side] for side in ("left", "right", "both")) > 5


def test_targets_are_what_was_asked_for_and_have_room():
    """All pairs are equally likely; for long chains only those with enough relatives."""
    uniform = stream(np.random.default_rng(4))
    family = TREE.draw(uniform, 1.0)
    members = listed(family.members)
    for name, length in (("daughter", 2), ("uncle", 5)):
        relation = number(name)
        expected = {
            (x, y)
            for x in members
            for y in members
            if TREE.relation(x, y, family) == relation
            and (TREE.room[x][y] & family.members).bit_count() >= length + 1
        }
        counts: collections.Counter[tuple[int, int]] = collections.Counter()
        for _ in range(60 * len(expected)):
            target = draw_target(uniform, TREE, family, relation, length)
            assert target is not None
            counts[target.x, target.y] += 1
        assert set(counts) == expected
        assert min(counts.values()) > 20
    assert draw_target(uniform, TREE, family, number("son"), 80) is None


def test_pairs_are_avoided_and_included():
    """Avoided in every step, included in at least one."""
    uniform = stream(np.random.default_rng(5))
    avoid = {pair for pair in COMPOSITIONS if pair[0] == number("son")}
    include = {(number("daughter"), number("sister")), (number("wife"), number("son"))}

    def pairs(**rules) -> list[list[tuple[int, int]]]:
        found = []
        while len(found) < 40:
            family = TREE.draw(uniform, 0.8)
            target = draw_target(uniform, TREE, family, TARGETS[int(uniform() * 18)], 4)
            chain = expand(uniform, TREE, family, target, 4, **rules) if target else None
            if chain:
                found.append([(step.first.relation, step.second.relation) for step in chain.proof])
        return found

    assert any(set(some) & avoid for some in pairs())
    assert not any(set(some) & avoid for some in pairs(avoid=avoid))
    assert all(set(some) & include for some in pairs(include=include))


def test_a_family_without_room_says_so():
    """A couple with one child has no chain of four facts and no facts about others."""
    family = Family(0b111, 0b010)
    uniform = stream(np.random.default_rng(6))
    target = Fact(0, number("son"), 2)
    assert TREE.relation(0, 2, family) == target.relation
    assert expand(uniform, TREE, family, target, 4) is None
    chain = expand(uniform, TREE, family, target, 2)
    assert chain is not None
    assert [RELATIONS[fact.relation] for fact in chain.facts] == ["wife", "son"]
    assert chain.proof == [Step(chain.facts[0], chain.facts[1], target)]
    for kind in ("supporting", "irrelevant", "disconnected"):
        counts = {"supporting": 0, "irrelevant": 0, "disconnected": 0, kind: 1}
        assert add_distractors(uniform, TREE, family, chain, **counts) is None


def test_distractors_are_true_and_dead_ends_go_both_ways(chains):
    """Dead ends connect to a new person in either direction."""
    uniform = stream(np.random.default_rng(7))
    ways = collections.Counter()
    for family, _, chain in chains:
        added = add_distractors(uniform, TREE, family, chain, supporting=1, irrelevant=1, disconnected=1)
        for kind, facts in added or ():
            assert all(TREE.relation(x, y, family) == relation for x, relation, y in facts)
            if kind == "irrelevant":
                ways[facts[0].x in listed(chain.people)] += 1
    assert min(ways[True], ways[False]) > 20


def test_unique_chains_compose_to_nothing_else():
    """Ambiguous chains are left out, and the others are unchanged."""
    found = collections.Counter()
    for seed in range(240):
        drawn = []
        for unique in (False, True):
            uniform = stream(np.random.default_rng(seed))
            family = TREE.draw(uniform, 0.8)
            target = draw_target(uniform, TREE, family, TARGETS[seed % 18], 5)
            drawn.append(expand(uniform, TREE, family, target, 5, unique=unique) if target else None)
        plain, unique_one = drawn
        if plain is None:
            assert unique_one is None
            continue
        ends = plain.facts[0].x, plain.facts[-1].y
        alone = len(deduce(plain.facts).between(*ends)) == 1
        assert (unique_one == plain) if alone else (unique_one is None)
        found[alone] += 1
    assert min(found[True], found[False]) > 5
