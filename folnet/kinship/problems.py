"""A problem: facts about some people, two of them asked about, the answer and its proof.

People of a problem are numbered from 0 in a random order, so that a number says nothing.
"""

import dataclasses

from folnet.kinship.rules import RELATIONS, TARGETS, Fact, Step

DISTRACTORS = ("supporting", "irrelevant", "disconnected")
"""Kinds of facts that are not needed: ways round, dead ends, other people."""


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """What y is to x, for `query` = (x, y).

    Attributes:
        num_people: people of the story, 0 to num_people - 1.
        facts: first the chain from x to y in its order, then those that are not needed.
        kinds: of each fact: "chain", or one of `DISTRACTORS`.
        query: the two people asked about.
        answer: the relation, by number.
        proof: compositions that lead to the answer, in order.
    """

    num_people: int
    facts: tuple[Fact, ...]
    kinds: tuple[str, ...]
    query: tuple[int, int]
    answer: int
    proof: tuple[Step, ...]

    @property
    def length(self) -> int:
        """Facts of the chain, k."""
        return len(self.proof) + 1

    @property
    def chain(self) -> tuple[Fact, ...]:
        """The facts that are needed."""
        return self.facts[: self.length]

    @property
    def label(self) -> int:
        """The class: the answer's place in `TARGETS`."""
        return TARGETS.index(self.answer)

    @property
    def answer_name(self) -> str:
        """The answer in words."""
        return RELATIONS[self.answer]
