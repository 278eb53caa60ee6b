"""CLUTRR's published graphs in pairs: families that meet in a person.

Training stories have at most five people, in a chain. Two that share someone have branches, and people who
are not related by any rule, as a model meets them in the longer stories of the tests.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from folnet.kinship import Fact, NumberedText, Problem, deduce
from folnet.kinship.rules import Pair
from folnet.tasks.clutrr_graphs import Published

_ATTEMPTS = 10


class Joint(NamedTuple):
    """A problem with the facts of two, and the numbers in it of the people of the first and of the second."""

    problem: Problem
    first: Sequence[int]
    second: Sequence[int]


@dataclasses.dataclass(frozen=True)
class Joined:
    """An endless sequence of problems; about half also have the facts of another one about someone in it.

    The problem with an index is the one that the source has there, modulo their number. A person of the
    other problem becomes a person of this one, of the same gender as far as the facts tell; the question and
    its only answer stay.

    Attributes:
        source: where problems come from.
    """

    source: Published

    @property
    def seed(self) -> int:
        """The source's, which also selects what is joined."""
        return self.source.seed

    @property
    def lengths(self) -> tuple[int, ...]:
        """The numbers of facts k of the questions."""
        return self.source.lengths

    @property
    def rules(self) -> Mapping[Pair, int]:
        """What two relations compose to."""
        return self.source.rules

    @property
    def max_people(self) -> int:
        """Maximum number of people in a problem."""
        return 2 * self.source.max_people - 1

    @property
    def max_facts(self) -> int:
        """Maximum number of facts in a problem."""
        return 2 * self.source.max_facts

    def __getitem__(self, index: int | np.integer) -> Problem:
        """Returns the problem with a nonnegative index."""
        return self._joined(int(index))[0].problem

    def numbered_text(self, index: int | np.integer) -> NumberedText:
        """Returns the numbered text of a problem: both stories, in random order."""
        joint, places = self._joined(int(index))
        stories = [
            tuple(
                numbers[piece] if isinstance(piece, int) else piece
                for piece in self.source.numbered_text(place)
            )
            for place, numbers in zip(places, (joint.first, joint.second), strict=False)
        ]
        order = np.random.default_rng((self.seed, int(index), 7)).permutation(len(stories))
        return sum((stories[place] for place in order), ())

    def _joined(self, index: int) -> tuple[Joint, list[int]]:
        """Returns a problem and the places of the one or two of the source that are in it."""
        problems, generator = self.source.problems, np.random.default_rng((self.seed, index, 6))
        here = index % len(problems)
        problem = problems[here]
        alone = Joint(problem, range(problem.num_people), ()), [here]
        if generator.random() < 0.5:
            return alone
        for _ in range(_ATTEMPTS):
            there = int(generator.integers(len(problems)))
            other = problems[there]
            places = int(generator.integers(problem.num_people)), int(generator.integers(other.num_people))
            if len({*_genders(problem)[places[0]], *_genders(other)[places[1]]}) > 1:
                continue
            joint = join(problem, other, *places, generator)
            found = joint.problem
            if deduce(found.facts, rules=self.rules).between(*found.query) == [found.answer]:
                return joint, [here, there]
        return alone

    def draw(self, indices: Iterable[int | np.integer]) -> list[Problem]:
        """Returns the problems with the given indices."""
        return [self[index] for index in indices]


def join(first: Problem, second: Problem, x: int, y: int, generator: np.random.Generator) -> Joint:
    """Returns the first problem with the facts of the second, whose person y is the first's person x.

    The people are numbered anew, in random order.
    """
    count = first.num_people + second.num_people - 1
    number = generator.permutation(count).tolist()
    others = iter(range(first.num_people, count))
    place = [x if person == y else next(others) for person in range(second.num_people)]
    moved = [Fact(place[fact.x], fact.relation, place[fact.y]) for fact in second.facts]
    facts = [Fact(number[a], relation, number[b]) for a, relation, b in (*first.facts, *moved)]
    problem = Problem(
        num_people=count,
        facts=tuple(facts),
        kinds=(*first.kinds, *("irrelevant",) * len(moved)),
        query=(number[first.query[0]], number[first.query[1]]),
        answer=first.answer,
        proof=(),
    )
    return Joint(problem, number[: first.num_people], [number[person] for person in place])


def _genders(problem: Problem) -> list[set[int]]:
    """Returns what the facts say of each person's gender: 1 for a woman, 0 for a man."""
    found: list[set[int]] = [set() for _ in range(problem.num_people)]
    for _, relation, y in problem.facts:
        found[y].add(relation & 1)
    return found
