"""Chains with a given run of relations have the properties of all chains."""

import itertools

import numpy as np
import pytest

from folnet.kinship.chains import draw_target, stream
from folnet.kinship.families import listed, tree
from folnet.kinship.rules import COMPOSITIONS, RELATIONS, TARGETS, number
from folnet.kinship.runs import _path, bracketings, by_length, expand_with_run, possible

TREE = tree(3, 3)


def run_of(*names: str) -> tuple[int, ...]:
    """Returns relations by number."""
    return tuple(map(number, names))


def test_bracketings_compose():
    """Each list of compositions leads from the run to its relation, over parts derived earlier."""
    for run, conclusions in (
        (run_of("husband", "son", "sister"), {"daughter"}),
        (run_of("wife", "son", "grandmother"), {"mother", "mother-in-law"}),
        (run_of("son", "brother", "uncle", "brother"), {"brother"}),
        (run_of("uncle", "son"), set()),
        (run_of("aunt"), {"aunt"}),
    ):
        found = bracketings(run)
        assert {RELATIONS[relation] for relation in found} == conclusions
        for relation, compositions in found.items():
            parts = {(place, place + 1): its for place, its in enumerate(run)}
            for start, middle, end in compositions:
                first, second = parts.pop((start, middle)), parts.pop((middle, end))
                parts[start, end] = COMPOSITIONS[first, second]
            assert parts == {(0, len(run)): relation}


def test_spouses_of_spouses_and_of_the_same_gender_are_impossible():
    """CLUTRR has no such chains; the gender of the first person is free."""
    assert possible(run_of("wife", "son", "wife"))
    assert possible(run_of("sister", "husband"))
    for names in (
        ("wife", "husband"),
        ("husband", "husband"),
        ("son", "brother", "husband"),
        ("sister", "wife"),
    ):
        assert not possible(run_of(*names)), names


def test_runs_are_found_by_length_and_conclusion():
    """An ambiguous run is listed under each of its conclusions."""
    ambiguous = run_of("wife", "son", "grandmother")
    runs = frozenset({ambiguous, run_of("son", "son"), run_of("uncle", "son")})
    assert by_length(runs) == {
        2: {number("grandson"): [run_of("son", "son")]},
        3: {
            number("mother"): [ambiguous],
            number("mother-in-law"): [ambiguous],
        },
    }


@pytest.mark.parametrize(
    ("run", "length"),
    [(("husband", "son", "sister"), 3), (("husband", "son", "sister"), 5), (("sister", "mother"), 4)],
)
def test_chains_have_the_run(run, length):
    """The facts and conclusions are true in their family."""
    uniform = stream(np.random.default_rng(length))
    wanted = run_of(*run)
    found = 0
    while found < 30:
        family = TREE.draw(uniform, 0.8)
        relation = next(iter(bracketings(wanted))) if length == len(run) else TARGETS[int(uniform() * 18)]
        target = draw_target(uniform, TREE, family, relation, length)
        chain = (
            expand_with_run(uniform, TREE, family, target, length, frozenset({wanted})) if target else None
        )
        if not chain or not target:
            continue
        found += 1
        assert len(chain.facts) == length == len(chain.proof) + 1
        path = [target.x, *(fact.y for fact in chain.facts)]
        assert [fact.x for fact in chain.facts] == path[:-1]
        assert path[-1] == target.y
        assert sorted(path) == listed(chain.people)
        assert len(set(path)) == length + 1
        assert chain.people & ~family.members == 0
        relations = tuple(fact.relation for fact in chain.facts)
        assert any(relations[i : i + len(run)] == wanted for i in range(length - len(run) + 1))
        known = list(chain.facts)
        for first, second, conclusion in chain.proof:
            assert COMPOSITIONS[first.relation, second.relation] == conclusion.relation
            assert TREE.relation(conclusion.x, conclusion.y, family) == conclusion.relation
            known.remove(first)
            known.remove(second)
            known.append(conclusion)
        assert known == [target]


def test_runs_of_all_lengths_occur():
    """The length is drawn first, so about half of the chains have the longer run."""
    uniform, short = stream(np.random.default_rng(0)), run_of("sister", "mother")
    long = run_of("brother", "sister", "mother")
    counts = [0, 0]
    while sum(counts) < 60:
        family = TREE.draw(uniform, 0.8)
        target = draw_target(uniform, TREE, family, number("mother"), 3)
        runs = frozenset({short, long})
        chain = expand_with_run(uniform, TREE, family, target, 3, runs) if target else None
        if chain:
            counts[tuple(fact.relation for fact in chain.facts) == long] += 1
    assert min(counts) > 5


def test_nobody_is_met_twice():
    """From a daughter to her brother and to a sister of his, who is another one."""
    uniform, run = stream(np.random.default_rng(0)), run_of("daughter", "brother", "sister", "husband")
    family = TREE.draw(uniform, 1.0)
    paths = [
        _path(uniform, TREE, family, (start,), end, run, 1 << start | 1 << end)
        for start, end in itertools.product(listed(family.members), repeat=2)
        if start != end
    ]
    found = [path for path in paths if path is not None]
    assert len(found) > 3
    assert all(len(set(path)) == len(run) + 1 for path in found)


def test_longer_runs_than_the_chain_have_none():
    """There is no fact to replace."""
    uniform = stream(np.random.default_rng(0))
    family = TREE.draw(uniform, 1.0)
    target = draw_target(uniform, TREE, family, number("son"), 2)
    assert target is not None
    runs = frozenset({run_of("son", "brother", "brother")})
    assert expand_with_run(uniform, TREE, family, target, 2, runs) is None
