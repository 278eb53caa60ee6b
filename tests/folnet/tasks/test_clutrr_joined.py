"""Joined problems: the first stays whole, the second is added at one person, and the answer is the same."""

import numpy as np
import pytest

from folnet import kinship
from folnet.kinship import deduce
from folnet.tasks.clutrr_graphs import Published
from folnet.tasks.clutrr_joined import Joined, join
from tests.folnet import small_tasks
from tests.folnet.tasks.test_clutrr import COPY, csv


def row(number: int, problem: kinship.Problem) -> str:
    """Returns a row of Hugging Face's copy with the graph of a generated problem."""
    edges, types = [(x, y) for x, _, y in problem.facts], kinship.relations_of(problem)
    names = [kinship.RELATIONS[relation] for relation in types]
    return (
        f'{number},id,x,x,0,{problem.answer_name},x,[],x-y,task_1.{problem.length},"{edges}","{names}",'
        f'"{problem.query}"'
    )


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Joined:
    folder = tmp_path_factory.mktemp("clutrr")
    problems = kinship.Kinship(3, (2, 3)).draw(range(60))
    rows = [row(number, problem) for number, problem in enumerate(problems)]
    small_tasks.write(folder / "train.csv", csv(COPY, *rows))
    return Joined(Published(str(folder), (2, 3), seed=5))


def relations(facts, people=None):
    """Returns the relations of the facts between these people, sorted."""
    return sorted(r for x, r, y in facts if people is None or {x, y} <= people)


def test_half_of_the_problems_have_another_ones_facts_too(joined):
    """Their question, its chain and its answer are the first one's, and nothing else answers it."""
    assert (joined.lengths, joined.max_people, joined.max_facts) == ((2, 3), 7, 6)
    found, longer = joined.draw(range(180)), 0
    for index, problem in enumerate(found):
        alone = joined.source[index % 60]
        if problem == alone:
            continue
        longer += 1
        assert (problem.answer, problem.length) == (alone.answer, alone.length)
        assert kinship.relations_of(problem) == kinship.relations_of(alone)
        assert problem.kinds.count("irrelevant") in (2, 3)
        assert {person for x, _, y in problem.facts for person in (x, y)} == set(range(problem.num_people))
        assert deduce(problem.facts, rules=joined.rules).between(*problem.query) == [problem.answer]
        women, men = ({y for _, r, y in problem.facts if r % 2 == gender} for gender in (1, 0))
        assert not women & men
    assert 40 < longer < 110  # the rules of so few questions do not answer all of them
    assert found == joined.draw(range(180))
    assert joined[60] != joined[0] or joined[120] != joined[0]


def test_stories_are_joined_as_their_problems_are(monkeypatch, joined):
    """Their people have the numbers of the problem, and either story may come first."""
    monkeypatch.setattr(Published, "numbered_text", lambda self, index: spoken(self[index]))
    first, longer = set(), 0
    for index in range(180):
        problem, text = joined[index], joined.numbered_text(index)
        own, both = spoken(joined.source[index % 60]), spoken(problem)
        if len(both) == len(own):
            assert text == both
            continue
        longer += 1
        assert text in (both, both[len(own) :] + both[: len(own)])
        first.add(text == both)
    assert longer > 40
    assert first == {True, False}


def spoken(problem: kinship.Problem) -> kinship.NumberedText:
    """Says the facts of a problem as person, relation, person."""
    return tuple(piece for x, r, y in problem.facts for piece in (x, kinship.RELATIONS[r], y))


def test_two_problems_share_one_person():
    first, second = kinship.Kinship(1, (3,))[0], kinship.Kinship(1, (2,))[0]
    numbers = set()
    for seed in range(20):
        both, of_first, of_second = join(first, second, 1, 2, np.random.default_rng(seed))
        assert both.num_people == first.num_people + second.num_people - 1
        mine, theirs = both.facts[:3], both.facts[3:]
        assert relations(mine) == relations(first.facts)
        assert relations(theirs) == relations(second.facts)
        (shared,) = {p for x, _, y in mine for p in (x, y)} & {p for x, _, y in theirs for p in (x, y)}
        for of, own, numbers_of in ((first, mine, of_first), (second, theirs, of_second)):
            pairs = [(numbers_of[fact.x], numbers_of[fact.y]) for fact in of.facts]
            assert pairs == [(fact.x, fact.y) for fact in own]
        assert of_first[1] == of_second[2] == shared
        assert both.query == tuple(of_first[person] for person in first.query)
        numbers.add(shared)
    assert len(numbers) > 3
