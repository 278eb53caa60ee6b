"""What is held out occurs exactly where it should, counted in independent ways."""

import functools
import itertools
import re
from typing import Any

import numpy as np
import pytest

from folnet import kinship
from folnet.kinship.rules import COMPOSITIONS, EDGES, RELATIONS, TARGETS, number
from folnet.kinship.runs import bracketings
from folnet.kinship.splits import (
    HeldOut,
    all_chains,
    check_disjoint,
    compositions,
    needs,
    occurs,
    reachable,
    relations_of,
    targets,
)
from tests.folnet import kinship_solver

RULE = {(a, b): c for a, b, c in kinship_solver.rules()}
LOOSE: Any = HeldOut  # for arguments that no type checker lets pass
SOURCE = kinship.Kinship(seed=3, lengths=(2, 3, 4, 5))


@functools.cache
def proofs(run: tuple[str, ...]) -> frozenset[tuple[str, frozenset[tuple[str, str]]]]:
    """Returns conclusion and pairs for every way of composing a chain.

    All places of the last composition are tried.
    """
    if len(run) == 1:
        return frozenset({(run[0], frozenset())})
    return frozenset(
        (RULE[first, second], left | right | {(first, second)})
        for place in range(1, len(run))
        for first, left in proofs(run[:place])
        for second, right in proofs(run[place:])
        if (first, second) in RULE
    )


def words(problem: kinship.Problem) -> tuple[str, ...]:
    """Returns the names of a chain's relations."""
    return tuple(EDGES[fact.relation] for fact in problem.chain)


@pytest.fixture(scope="module")
def problems() -> list[kinship.Problem]:
    """Draws problems without distractors."""
    return SOURCE.draw(range(300))


def test_compositions_are_those_of_every_part_of_the_chain(problems):
    """They include all pairs that some part of the chain composes, needed or not."""
    for problem in problems:
        run = words(problem)
        parts = [run[i:j] for i in range(len(run)) for j in range(i + 2, len(run) + 1)]
        assert compositions(problem) == {pair for part in parts for _, used in proofs(part) for pair in used}
        assert {conclusion for conclusion, _ in proofs(run)} == {problem.answer_name}


@pytest.mark.parametrize("seed", range(3))
def test_needing_a_pair_is_having_no_proof_without(problems, seed):
    """Compared with a list of all proofs."""
    held = HeldOut.draw_pairs(seed, 10)
    sides = [0, 0, 0]
    for problem in problems:
        needed = all(used & held.pairs for _, used in proofs(words(problem)))
        assert needs(problem, held) == needed
        shown = bool(compositions(problem) & held.pairs)
        assert occurs(problem, held) == shown
        sides[needed + shown] += 1
    assert min(sides) > 0  # neither, shown without need, both


def test_a_chain_occurs_in_a_row(problems):
    """At the start, in the middle or at the end, but not with a gap."""
    for problem in problems[:100]:
        run = words(problem)
        for chain in ({run}, {run[-2:]}, {run[:2]}):
            if proofs(next(iter(chain))):
                held = HeldOut(chains=frozenset(chain))
                assert occurs(problem, held)
                assert needs(problem, held)
        if len(run) == 3 and proofs((run[0], run[2])) and (run[0], run[2]) not in (run[:2], run[1:]):
            assert not occurs(problem, HeldOut(chains=frozenset({(run[0], run[2])})))


def test_the_wrong_side_is_named(problems):
    """The error names the problem and its chain."""
    held = HeldOut(chains=frozenset({words(problems[1])}))
    apart = [problem for problem in problems if not occurs(problem, held)]
    check_disjoint(apart, problems[1:2], held)
    chain = ", ".join(words(problems[1]))
    shown = re.escape(f"train[1]: got {chain}, expected a problem without anything")
    with pytest.raises(ValueError, match=shown):
        check_disjoint([apart[0], problems[1]], [], held)
    with pytest.raises(ValueError, match=re.escape("test[0]: got ")):
        check_disjoint(apart, apart, held)
    with pytest.raises(ValueError, match="held_out: got nothing, expected pairs or chains"):
        check_disjoint(apart, apart, HeldOut())


def test_all_chains_are_all():
    """Of 14^2 and 14^3 sequences, those that compose to one relation, without spouses of spouses."""
    women = {name for names in kinship_solver.WORDS.values() for name in names[1:]}
    wrong = {
        (first, second)
        for first in EDGES
        for second in ("husband", "wife")
        if first in ("husband", "wife") or (first in women) == (second in women)
    }
    for length in (2, 3):
        expected = {
            run
            for run in itertools.product(EDGES, repeat=length)
            if len({conclusion for conclusion, _ in proofs(run)}) == 1
            if not wrong & set(itertools.pairwise(run))
        }
        assert {tuple(EDGES[r] for r in run) for run in all_chains(length)} == expected
    assert [len(all_chains(length)) for length in (2, 3)] == [62, 356]  # so none twice


def test_every_problems_chain_is_one_of_all(problems):
    """For chains short enough to enumerate."""
    for problem in problems:
        if problem.length < 5:
            assert relations_of(problem) in all_chains(problem.length)


@pytest.mark.parametrize("length", [2, 3, 4])
def test_reachable_relations_are_those_of_chains(length):
    """Over all chains, those composed without the avoided pairs or with an included one."""
    pairs = {pair for pair, result in COMPOSITIONS.items() if result in (number("uncle"), number("son"))}
    kept = {pair for pair in pairs if pair != (number("son"), number("brother"))}
    if length < 4:
        found = {
            conclusion: [] for run in itertools.product(EDGES, repeat=length) for conclusion, _ in proofs(run)
        }
        for run in itertools.product(EDGES, repeat=length):
            for conclusion, used in proofs(run):
                found[conclusion].append({(number(a), number(b)) for a, b in used})
        without = {name for name, ways in found.items() if any(not used & kept for used in ways)}
        with_one = {name for name, ways in found.items() if any(used & kept for used in ways)}
        assert {RELATIONS[r] for r in reachable(length, avoid=kept)} == without
        assert {RELATIONS[r] for r in reachable(length, include=kept)} == with_one
    assert reachable(length) == sorted(TARGETS)
    assert reachable(length, avoid=set(COMPOSITIONS)) == []


def test_drawn_pairs_leave_every_conclusion_one():
    """At most 44 of 62 are drawn; the same seed gives the same pairs."""
    for count in (1, 20, 44):
        held = HeldOut.draw_pairs(4, count)
        assert len(held.pairs) == count
        left = set(COMPOSITIONS) - held.pair_numbers
        assert {COMPOSITIONS[pair] for pair in left} == set(TARGETS)
    assert HeldOut.draw_pairs(4, 9) == HeldOut.draw_pairs(4, 9) != HeldOut.draw_pairs(5, 9)


def test_drawn_chains_are_some_of_all():
    """The fraction is as requested; the same seed gives the same chains."""
    held = HeldOut.draw_chains(2, 3, 0.25)
    assert len(held.chains) == round(0.25 * len(all_chains(3)))
    assert held.chain_numbers <= set(all_chains(3))
    assert held == HeldOut.draw_chains(2, 3, 0.25) != HeldOut.draw_chains(3, 3, 0.25)
    assert bool(held)
    assert not HeldOut()
    for length in (2, 4):  # of a small fraction one is left
        assert [len(chain) for chain in HeldOut.draw_chains(0, length, 0.0001).chains] == [length]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HeldOut(frozenset({("uncle", "son")})), "held_out.pairs: got ('uncle', 'son'), expected"),
        (lambda: LOOSE(frozenset({("son",)})), "held_out.pairs: got ('son',), expected two relations"),
        (lambda: HeldOut(frozenset({("son", "cousin")})), "relation: got 'cousin', expected one of"),
        (lambda: LOOSE("son"), "held_out.pairs: got 'son', expected a set of tuples"),
        (
            lambda: LOOSE(frozenset({"son"})),
            "held_out.pairs: got frozenset({'son'}), expected a set of tuples",
        ),
        (
            lambda: HeldOut(chains=frozenset({("son",)})),
            "held_out.chains: got ('son',), expected two or more",
        ),
        (
            lambda: HeldOut(chains=frozenset({("wife", "wife", "son")})),
            "expected two or more relations that may",
        ),
        (lambda: HeldOut(chains=frozenset({("niece", "son")})), "held_out.chains: got ('niece', 'son')"),
        (lambda: HeldOut(chains=frozenset({("son", "father")})), "held_out.chains: got ('son', 'father')"),
        (
            lambda: HeldOut(chains=frozenset({("son-in-law", "son")})),
            "held_out.chains: got ('son-in-law', 'son')",
        ),
        (lambda: HeldOut.draw_pairs(0, 45), "count: got 45, expected 1 to 44"),
        (lambda: HeldOut.draw_pairs(0, 0), "count: got 0, expected 1 to 44"),
        (lambda: HeldOut.draw_chains(0, 5, 0.1), "length: got 5, expected 2 to 4"),
        (lambda: HeldOut.draw_chains(0, 1, 0.1), "length: got 1, expected 2 to 4"),
        (lambda: HeldOut.draw_chains(0, 3, 0.0), "fraction: got 0.0, expected above 0 and below 1"),
        (lambda: HeldOut.draw_chains(0, 3, 1.0), "fraction: got 1.0, expected above 0 and below 1"),
    ],
)
def test_bad_sets_are_named(make, message):
    """The error says what was expected."""
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


@pytest.mark.parametrize("length", [2, 3])
def test_conclusions_of_which_every_chain_is_held_out_are_not_asked_for(length):
    runs = [run for run in all_chains(length) if number("uncle") in bracketings(run)]
    held = HeldOut(chains=frozenset(tuple(RELATIONS[relation] for relation in run) for run in runs))
    everything = targets(HeldOut(), "seen", length)
    assert number("uncle") in everything
    assert targets(held, "seen", length) == tuple(
        relation for relation in everything if relation != number("uncle")
    )


def test_a_run_whose_conclusion_is_in_no_story_is_no_part_of_a_longer_chain():
    held = HeldOut(chains=frozenset({("daughter", "husband")}))
    assert targets(held, "held_out", 2) == (number("son-in-law"),)
    assert targets(held, "held_out", 3) == ()


def test_both_pairs_and_chains_may_be_held_out():
    """Training shows neither; each test problem requires one of them, and both kinds occur."""
    held = HeldOut(HeldOut.draw_pairs(6, 6).pairs, HeldOut.draw_chains(6, 3, 0.1).chains)
    train = kinship.Kinship(lengths=(2, 3), held_out=held, part="seen").draw(range(100))
    test = kinship.Kinship(seed=1, lengths=(2, 3), held_out=held, part="held_out").draw(range(100))
    check_disjoint(train, test, held)
    by_pair = np.array([needs(problem, HeldOut(held.pairs)) for problem in test])
    by_chain = np.array([needs(problem, HeldOut(chains=held.chains)) for problem in test])
    assert by_pair.any()
    assert by_chain.any()
    assert (by_pair | by_chain).all()
