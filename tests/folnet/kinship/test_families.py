"""Families: every relation is true by definition, and the rules derive all of them."""

import numpy as np
import pytest

from folnet.kinship.chains import stream
from folnet.kinship.families import Family, listed, pick, tree
from folnet.kinship.rules import KINDS, RELATIONS, RULES, Fact, deduce
from tests.folnet import kinship_solver

TREE = tree(3, 3)


def families(count: int, marriage: float = 0.8) -> list[Family]:
    """Draws families with one generator."""
    uniform = stream(np.random.default_rng(1))
    return [TREE.draw(uniform, marriage) for _ in range(count)]


def stated(family: Family) -> set[tuple[int, str, int]]:
    """Returns all relations of a family, by name."""
    people = listed(family.members)
    return {
        (x, RELATIONS[relation], y)
        for x in people
        for y in people
        if (relation := TREE.relation(x, y, family)) >= 0
    }


def test_relations_are_what_the_words_mean():
    """Parents and marriages are read from the relations; the definitions of the words give all others."""
    for family in families(12):
        relations = stated(family)
        people = listed(family.members)

        def those(*names: str, among: set = relations) -> set[tuple[int, int]]:
            return {(x, y) for x, name, y in among if name in names}

        parent, spouse = those("father", "mother"), those("husband", "wife")
        married = dict(spouse)
        parents = {x: {y for a, y in parent if a == x} for x in people}
        meant = {
            ("son", "daughter"): {(y, x) for x, y in parent},
            ("brother", "sister"): {
                (x, y) for x in people for y in people if x != y and parents[x] and parents[x] == parents[y]
            },
            ("grandfather", "grandmother"): {(x, z) for x, y in parent for z in parents[y]},
            ("father-in-law", "mother-in-law"): {(x, z) for x, y in spouse for z in parents[y]},
        }
        meant["son-in-law", "daughter-in-law"] = {(y, x) for x, y in meant["father-in-law", "mother-in-law"]}
        meant["grandson", "granddaughter"] = {(y, x) for x, y in meant["grandfather", "grandmother"]}
        sibling = meant["brother", "sister"]
        meant["uncle", "aunt"] = {(x, z) for x, y in parent for a, z in sibling if a == y}
        meant["nephew", "niece"] = {(z, x) for x, z in meant["uncle", "aunt"]}
        for names, pairs in meant.items():
            assert those(*names) == pairs, names
        assert all(len(some) in (0, 2) for some in parents.values())
        assert all(married[married[x]] == x for x in married)
        assert all(married[a] == b for a, b in map(sorted, filter(None, parents.values())))
        for names in kinship_solver.WORDS.values():
            men = {y for _, y in those(names[0])}
            assert not men & {y for _, y in those(names[1])}
            assert not men & set(listed(family.women))
        assert all((x in listed(family.women)) != (y in listed(family.women)) for x, y in spouse)


def test_a_family_is_closed_under_the_rules():
    """From parents, children and marriages the rules derive every other relation.

    They also derive false ones: by "child, then grandparent, is parent", a parent-in-law is a parent. Chains
    therefore take third persons from true relations.
    """
    some = families(6)
    plain = ("son", "daughter", "father", "mother", "husband", "wife")
    wrong = set()
    for family in some:
        people = {person: place for place, person in enumerate(listed(family.members))}
        facts = [(people[x], RELATIONS.index(name), people[y]) for x, name, y in stated(family)]
        base = [fact for fact in facts if RELATIONS[fact[1]] in plain]
        known = kinship_solver.closure([base], len(people))
        derived = {
            (x, relation, y)
            for relation in range(len(RELATIONS))
            for x in range(len(people))
            for y in range(len(people))
            if known[relation, 0, x] >> y & 1
        }
        assert set(facts) <= derived
        assert derived == {tuple(fact) for fact in deduce([Fact(*fact) for fact in base]).facts}
        wrong |= {RELATIONS[relation] for _, relation, _ in derived - set(facts)}
    assert {"father", "mother"} <= wrong


def test_between_is_every_third_person_a_rule_allows():
    """Compares with trying every person."""
    small = tree(2, 2)
    everyone = range(len(small.parents))
    for x in everyone:
        for y in everyone:
            expected = {
                (first, second, z)
                for z in everyone
                for (first, second), result in RULES.items()
                if small.kinds[x][y] >= 0 and result == KINDS[small.kinds[x][y]]
                if small.kinds[x][z] == KINDS.index(first) and small.kinds[z][y] == KINDS.index(second)
            }
            found = {(KINDS[a], KINDS[b], z) for a, b, people in small.between[x][y] for z in listed(people)}
            assert found == expected


def test_room_is_everybody_who_can_ever_come_between():
    """Compares with a search over pairs of pairs."""
    small = tree(2, 2)
    for x in range(len(small.parents)):
        for y in range(len(small.parents)):
            people, seen, left = {x, y}, set(), [(x, y)]
            while left:
                pair = left.pop()
                if pair in seen:
                    continue
                seen.add(pair)
                for way in small.between[pair[0]][pair[1]]:
                    for z in listed(way.people):
                        people.add(z)
                        left += [(pair[0], z), (z, pair[1])]
            assert set(listed(small.room[x][y])) == people


def test_families_differ_in_children_marriages_and_genders():
    """Couples have one to three children, uniformly; the marriage rate is as requested; half are women."""
    some = families(800)
    children, married, women, born = [], 0, 0, 0
    for family in some:
        members = set(listed(family.members))
        assert {0, 1} <= members
        assert family.women & ~family.members == 0
        for person in members:
            if person % 2 == 0:  # a descendant, whose spouse is the next number
                if person + 1 in members:
                    children.append(len(members & set(TREE.offspring[person])))
                if person:
                    born += 1
                    married += person + 1 in members
                    women += family.women >> person & 1
    last = [len(TREE.offspring[person]) for person in range(len(TREE.parents))]
    assert set(last) == {0, 3}
    counts = np.bincount(children, minlength=4)
    assert counts[1:].min() > 0.25 * counts[1:].sum()
    assert len(counts) == 4
    for share, expected in ((married / born, 0.8), (women / born, 0.5)):
        assert abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / born)


def test_a_marriage_rate_of_one_marries_everybody():
    for family in families(5, marriage=1.0):
        assert all(person ^ 1 in listed(family.members) for person in listed(family.members))


@pytest.mark.parametrize("people", [1, 0b1011000, 1 << 79 | 1])
def test_pick_reaches_everybody_alike(people):
    """Each person is picked from an equal part of [0, 1)."""
    expected = [bit for bit in range(80) if people >> bit & 1]
    assert listed(people) == expected
    size = len(expected)
    assert [pick(people, (place + 0.5) / size) for place in range(size)] == expected


def test_thirds_are_the_people_between():
    """The people of each way, and their union."""
    for x, y in ((0, 2), (2, 3), (3, 30), (40, 0), (5, 60)):
        anybody, sets = TREE.thirds[x][y]
        assert list(sets) == [way.people for way in TREE.between[x][y]]
        assert set(listed(anybody)) == {person for people in sets for person in listed(people)}


def test_the_roomy_have_room_in_the_whole_tree():
    """For every kind and several lengths: the same people in the same order."""
    for kind in range(len(KINDS)):
        for length in (2, 7, 10):
            wanted = {
                (x, y)
                for x in range(len(TREE.parents))
                for y in listed(TREE.relatives[x][kind])
                if len(listed(TREE.room[x][y])) > length
            }
            found = TREE.roomy(kind, length)
            assert {(x, y) for x, others in found for y in listed(others)} == wanted
            assert [x for x, _ in found] == sorted({x for x, _ in wanted})
