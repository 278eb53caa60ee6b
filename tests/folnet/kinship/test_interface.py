"""Kinship problems: each has exactly one answer, the stated one, under all settings."""

import collections
import dataclasses
import hashlib
import itertools
import re

import numpy as np
import pytest

from folnet import kinship
from tests.folnet import kinship_solver

PLAIN = kinship.Kinship(seed=5, lengths=tuple(range(2, 11)))
NOISY = kinship.Kinship(seed=6, lengths=(2, 3, 4, 6), supporting=1, irrelevant=2, disconnected=1)
HELD = kinship.HeldOut.draw_pairs(seed=0, count=12)
SEEN = kinship.Kinship(seed=7, lengths=(2, 3, 4), held_out=HELD, part="seen")
ASKED = kinship.Kinship(seed=8, lengths=(2, 3, 4), held_out=HELD, part="held_out")
EVERY_PAIR = kinship.HeldOut(frozenset((a, b) for a, b, _ in kinship_solver.rules()))
EVERY_CHAIN = kinship.HeldOut(chains=EVERY_PAIR.pairs)
SETS = {"plain": (PLAIN, 1800), "noisy": (NOISY, 300), "seen": (SEEN, 300), "held out": (ASKED, 100)}


@pytest.fixture(scope="module")
def drawn() -> dict[str, list[kinship.Problem]]:
    """Draws 2,500 problems, some with each setting."""
    return {name: source.draw(range(count)) for name, (source, count) in SETS.items()}


def test_thousands_of_problems_have_the_stated_answer_and_no_other(drawn):
    """Checked by a solver that only has the facts, including distractors, and the rules."""
    problems = list(itertools.chain.from_iterable(drawn.values()))
    assert len(problems) == 2500
    for problem, found in zip(problems, kinship_solver.answers(problems), strict=True):
        assert found == {problem.answer_name}, problem


def test_distractors_are_not_needed(drawn):
    """The chain alone has the same answer; without its first fact it has none."""
    problems = drawn["noisy"]
    pruned = [dataclasses.replace(p, facts=p.chain, kinds=p.kinds[: p.length]) for p in problems]
    for problem, found in zip(pruned, kinship_solver.answers(pruned), strict=True):
        assert found == {problem.answer_name}
    cut = [dataclasses.replace(p, facts=p.chain[1:], kinds=p.kinds[1:]) for p in pruned if p.length > 2]
    assert not any(kinship_solver.answers(cut))


def test_the_chain_leads_from_the_one_to_the_other(drawn):
    """It visits different people, by relations that may occur in a story."""
    for problem in itertools.chain.from_iterable(drawn.values()):
        path = [problem.chain[0].x, *(fact.y for fact in problem.chain)]
        assert all(fact.x == before for fact, before in zip(problem.chain, path, strict=False))
        assert (path[0], path[-1]) == problem.query
        assert len(set(path)) == len(path)
        assert max(fact.relation for fact in problem.facts) < kinship.NUM_EDGES
        people = {person for fact in problem.facts for person in (fact.x, fact.y)}
        assert people == set(range(problem.num_people))
        pairs = [(fact.x, fact.y) for fact in problem.facts]
        assert len(set(pairs)) == len(pairs)
        assert problem.query not in pairs


def test_proofs_start_from_facts_and_end_in_the_answer(drawn):
    """Each step composes known premises by a rule, and uses each premise once."""
    table = {(first, second): result for first, second, result in kinship_solver.rules()}
    for problem in itertools.chain.from_iterable(drawn.values()):
        known = collections.Counter(problem.chain)
        for first, second, conclusion in problem.proof:
            assert first.y == second.x
            assert (first.x, second.y) == (conclusion.x, conclusion.y)
            names = [kinship.RELATIONS[fact.relation] for fact in (first, second, conclusion)]
            assert table[names[0], names[1]] == names[2]
            known.subtract([first, second])
            assert min(known.values()) >= 0
            known[conclusion] += 1
        left = [fact for fact, count in known.items() if count]
        assert left == [kinship.Fact(problem.query[0], problem.answer, problem.query[1])]


def test_distractors_are_of_their_kinds(drawn):
    """A detour composes to its fact; a dead end has one new person; other facts are disconnected."""
    for problem in drawn["noisy"]:
        expected = {"chain": problem.length, "supporting": 2, "irrelevant": 2, "disconnected": 1}
        assert collections.Counter(problem.kinds) == expected
        of = {
            kind: [fact for fact, its in zip(problem.facts, problem.kinds, strict=True) if its == kind]
            for kind in expected
        }
        first, second = of["supporting"]
        between = [fact for fact in of["chain"] if (fact.x, fact.y) == (first.x, second.y)]
        assert first.y == second.x
        assert len(between) == 1
        result = kinship.compose(kinship.RELATIONS[first.relation], kinship.RELATIONS[second.relation])
        assert result == kinship.RELATIONS[between[0].relation]
        story = {person for fact in of["chain"] + of["supporting"] for person in (fact.x, fact.y)}
        for fact in of["irrelevant"]:
            assert len({fact.x, fact.y} & story) == 1
            story |= {fact.x, fact.y}
        for fact in of["disconnected"]:
            assert not {fact.x, fact.y} & story


def test_every_class_occurs_about_evenly(drawn):
    """All eighteen occur at every length; dead ends point in both directions."""
    counts = collections.Counter(problem.label for problem in drawn["plain"])
    assert set(counts) == set(range(18))
    even = len(drawn["plain"]) / 18
    assert sum((count - even) ** 2 / even for count in counts.values()) < 41  # chi squared, 17: p = .001
    for length in range(2, 11):
        some = [problem for problem in drawn["plain"] if problem.length == length]
        assert abs(len(some) - 1800 / 9) < 5 * np.sqrt(1800 / 9)
        assert len({problem.label for problem in some}) == 18
    stated = {fact.relation for problem in drawn["plain"] for fact in problem.facts}
    assert stated == set(range(14))


def test_people_are_numbered_at_random(drawn):
    """A person's number does not reveal whether the question is about that person."""
    firsts = collections.Counter(p.query[0] for p in drawn["plain"] if p.length == 3)
    total = sum(firsts.values())
    assert all(abs(firsts[i] - total / 4) < 5 * np.sqrt(total / 4) for i in range(4))


def test_what_is_held_out_never_occurs_in_training_and_is_always_asked_for(drawn):
    """Checked by the package's own function and by the steps of every proof."""
    kinship.check_disjoint(drawn["seen"], drawn["held out"], HELD)
    pairs = set(HELD.pairs)
    assert not any(kinship.compositions(problem) & pairs for problem in drawn["seen"])
    occurring = set().union(*map(kinship.compositions, drawn["held out"]))
    assert pairs <= occurring
    shown = set().union(*map(kinship.compositions, drawn["seen"]))
    assert shown == {(a, b) for a, b, _ in kinship_solver.rules()} - pairs
    for problem in drawn["held out"]:
        steps = {
            (kinship.RELATIONS[step.first.relation], kinship.RELATIONS[step.second.relation])
            for step in problem.proof
        }
        assert steps & pairs  # every proof needs one, so this one does


def test_chains_held_out():
    """Test chains of three facts do not occur in training."""
    held = kinship.HeldOut.draw_chains(seed=1, length=3, fraction=0.2)
    train = kinship.Kinship(lengths=(2, 3, 4), held_out=held, part="seen").draw(range(300))
    test = kinship.Kinship(lengths=(3,), held_out=held, part="held_out").draw(range(100))
    kinship.check_disjoint(train, test, held)
    chains = [tuple(kinship.EDGES[r] for r in kinship.relations_of(p)) for p in train]
    asked = {tuple(kinship.EDGES[r] for r in kinship.relations_of(p)) for p in test}
    assert asked <= held.chains
    windows = {chain[i : i + 3] for chain in chains for i in range(len(chain) - 2)}
    assert not windows & held.chains


def test_a_problem_is_a_function_of_seed_and_index():
    """Access is random and in any order; other seeds and indices give other problems."""
    again = kinship.Kinship(seed=5, lengths=tuple(range(2, 11)))
    assert again[917] == PLAIN[917]
    assert again.draw([3, 2, 2**32 - 1]) == [PLAIN[3], PLAIN[2], PLAIN[2**32 - 1]]
    assert again.draw([np.int64(4)]) == PLAIN.draw([4])
    assert again.story(8) == PLAIN.story(8)
    assert len({repr(PLAIN[index]) for index in range(50)}) == 50
    other = kinship.Kinship(seed=9, lengths=tuple(range(2, 11)))
    assert all(other[index] != PLAIN[index] for index in range(20))


def test_problems_of_a_number_stay_what_they_are():
    """Recorded problems.

    Results identify their data by settings, seed and index, so these must keep their meaning.
    """
    story = kinship.Kinship(seed=0, lengths=(3,)).story(0)
    assert story.text == (
        "Hayden is Shawn's daughter. Hayden's brother is Robin. "
        "Terry grew up in the house of a father, Shawn."
    )
    assert (story.question, story.answer) == ("How is Robin related to Terry?", "brother")
    sources = (PLAIN, NOISY, SEEN, ASKED)
    text = "\n".join(f"{source[i]} {source.story(i).text}" for source in sources for i in range(40))
    assert hashlib.sha256(text.encode()).hexdigest().startswith("ccf87c0b9de91e2f")
    chains = kinship.HeldOut.draw_chains(2, 3, 0.25)
    both = kinship.HeldOut(
        kinship.HeldOut.draw_pairs(6, 6).pairs, kinship.HeldOut.draw_chains(6, 3, 0.1).chains
    )
    sources = (
        kinship.Kinship(seed=3, lengths=(3, 4, 6), held_out=chains, part="held_out"),
        kinship.Kinship(seed=4, lengths=(2, 3), held_out=both, part="held_out", irrelevant=1),
        kinship.Kinship(seed=5, lengths=(2, 3, 5), held_out=both, part="seen", disconnected=1),
        kinship.Kinship(seed=6, lengths=(4,), generations=2, children=4, marriage=0.95),
        kinship.Kinship(),
    )
    text = "\n".join(f"{source[i]} {source.story(i).text}" for source in sources for i in range(15))
    assert hashlib.sha256(text.encode()).hexdigest().startswith("7523e60f01890b7e")


def test_varied_problems_have_every_number_of_distractors_up_to_the_given_one():
    """Without it they all have the given number; what else a problem is drawn from stays as it was."""
    varied = kinship.Kinship(seed=5, irrelevant=2, disconnected=1, varied=True).draw(range(60))
    numbers = [(p.kinds.count("irrelevant"), p.kinds.count("disconnected")) for p in varied]
    assert set(numbers) == {(i, d) for i in range(3) for d in range(2)}
    fixed = kinship.Kinship(seed=5, irrelevant=2, disconnected=1).draw(range(20))
    assert {(p.kinds.count("irrelevant"), p.kinds.count("disconnected")) for p in fixed} == {(2, 1)}


def test_settings_bound_the_people():
    """The maximum is reached and never exceeded."""
    assert NOISY.max_people == 7 + 1 + 2 + 2
    sizes = [problem.num_people for problem in NOISY.draw(range(60))]
    assert max(sizes) == NOISY.max_people
    most = kinship.Kinship(lengths=(3, 7), supporting=1, irrelevant=2, disconnected=4).max_facts
    assert most == 7 + 2 + 2 + 4
    assert kinship.Kinship(lengths=(2, 3), supporting=2).max_facts == 3 + 2 * 2  # every fact of the shortest
    small = kinship.Kinship(lengths=(4,), generations=2, children=2, marriage=1.0)
    assert all(problem.num_people == 5 for problem in small.draw(range(30)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lengths": (1,)}, "lengths: got 1, expected 2 to 10"),
        ({"lengths": (2, 11)}, "lengths: got 11, expected 2 to 10"),
        ({"lengths": (2.0,)}, "lengths: got 2.0, expected 2 to 10"),
        ({"lengths": ()}, "lengths: got (), expected some integers"),
        ({"lengths": 3}, "lengths: got 3, expected some integers"),
        ({"seed": -1}, "seed: got -1, expected an integer from 0 to 2^32 - 1"),
        ({"seed": 2**32}, "seed: got 4294967296, expected an integer"),
        ({"seed": True}, "seed: got True, expected an integer"),
        ({"supporting": 3}, "supporting: got 3, expected at most 2, the number of facts"),
        ({"irrelevant": -1}, "irrelevant: got -1, expected 0 to 8"),
        ({"disconnected": 9}, "disconnected: got 9, expected 0 to 8"),
        ({"generations": 1}, "generations: got 1, expected 2 to 3"),
        ({"children": 5}, "children: got 5, expected 2 to 4"),
        ({"marriage": 0.0}, "marriage: got 0.0, expected above 0 and at most 1"),
        ({"marriage": 1.1}, "marriage: got 1.1, expected above 0 and at most 1"),
        ({"part": "train"}, "part: got 'train', expected one of 'all', 'seen', 'held_out'"),
        ({"part": "seen"}, "held_out: got nothing, expected pairs or chains (part is 'seen')"),
        (
            {
                "part": "seen",
                "held_out": kinship.HeldOut(frozenset((a, b) for a, b, _ in kinship_solver.rules())),
            },
            "held_out: got 62 of 62 pairs and 0 chains, expected some that leave problems of 2 facts",
        ),
        (
            {"part": "seen", "held_out": EVERY_CHAIN},
            "held_out: got 0 of 62 pairs and",
        ),
        (
            {
                "part": "held_out",
                "held_out": kinship.HeldOut(chains=frozenset({("husband", "son", "sister")})),
            },
            "expected some that leave problems of 2 facts",
        ),
    ],
)
def test_bad_settings_are_named(settings, message):
    """The error gives the value and what was expected."""
    with pytest.raises(ValueError, match=re.escape(message)):
        kinship.Kinship(**settings)


def test_bad_indices_and_settings_no_family_has_are_named():
    """The search for a problem ends with an error."""
    with pytest.raises(ValueError, match=re.escape("index: got -1, expected an integer")):
        PLAIN[-1]
    crowded = kinship.Kinship(lengths=(10,), generations=2, children=2, disconnected=8)
    with pytest.raises(
        ValueError, match="index: got 3, expected one with a problem of 10 facts \\(none found in 3000"
    ):
        crowded[3]
