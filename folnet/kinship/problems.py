"""A problem: facts about people, a question about two of them, the answer and its proof.

The people of a problem are numbered from 0 in random order, so numbers carry no information.
"""

import dataclasses
from typing import Literal, get_args

from folnet.kinship.rules import RELATIONS, TARGETS, Fact, Step

Distractor = Literal["supporting", "irrelevant", "disconnected"]
"""Kinds of facts that are not needed: detours, dead ends, facts about other people."""

DISTRACTORS: tuple[Distractor, ...] = get_args(Distractor)

Kind = Literal["chain", Distractor]


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """The question "what is y to x?" for `query` = (x, y), with its facts, answer and proof.

    Attributes:
        num_people: number of people in the story, numbered 0 to num_people - 1.
        facts: the chain from x to y in order, then the distractors.
        kinds: for each fact, "chain" or the kind of distractor.
        query: the two people of the question.
        answer: the relation, by number.
        proof: compositions that lead to the answer, in order; () if none is known.
    """

    num_people: int
    facts: tuple[Fact, ...]
    kinds: tuple[Kind, ...]
    query: tuple[int, int]
    answer: int
    proof: tuple[Step, ...]

    @property
    def length(self) -> int:
        """Number of facts in the chain, k."""
        return self.kinds.count("chain")

    @property
    def chain(self) -> tuple[Fact, ...]:
        """The facts that are needed, from x to y."""
        return self.facts[: self.length]

    @property
    def label(self) -> int:
        """Class of the answer: its index in `TARGETS`."""
        return TARGETS.index(self.answer)

    @property
    def answer_name(self) -> str:
        """Name of the relation that answers the question."""
        return RELATIONS[self.answer]
