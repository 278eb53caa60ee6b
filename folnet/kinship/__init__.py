"""Kinship problems in the manner of CLUTRR (Sinha et al. 2019), drawn by number.

```python
from folnet import kinship

train = kinship.Kinship(seed=0, lengths=(2, 3))
problem = train[12345]                      # any number, at once: nothing is replayed
story = train.story(12345)                  # the same problem as text
batch = kinship.symbols(train.draw(range(64)), num_people=train.max_people)      # arrays for a model

held_out = kinship.HeldOut.draw_pairs(seed=0, count=8)
train = kinship.Kinship(seed=0, lengths=(2, 3), held_out=held_out, part="seen")
test = kinship.Kinship(seed=1, lengths=(3, 4), held_out=held_out, part="held_out")
```

The files in their order: `rules` (relatives and how they compose), `families` (who is what to whom), `chains`
(expanding a question into facts, and distractors), `runs` (chains with given relations), `problems`, `splits`
(what training never shows), `text` (stories and proofs), `arrays`.

As text, a model reads `WordPieceTokenizer([*SPECIAL_TOKENS, *kinship.WORDS])(stories, questions)`, or any
other vocabulary's.

A problem is a function of (seed, index) and of the settings. Relations asked for are drawn evenly
from those that can be had, so a guess is right one time in about eighteen.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import TypeGuard, get_args

import numpy as np

from folnet.kinship.arrays import QUERY, RELATION_VOCAB_SIZE, VOCAB_SIZE, Symbols, symbols
from folnet.kinship.chains import add_distractors, draw_target, expand, stream
from folnet.kinship.families import Tree, listed, tree
from folnet.kinship.problems import DISTRACTORS, Problem
from folnet.kinship.rules import (
    COMPOSITIONS,
    EDGES,
    NUM_EDGES,
    RELATIONS,
    RULES,
    TARGET_NAMES,
    TARGETS,
    Deduction,
    Fact,
    Step,
    compose,
    deduce,
)
from folnet.kinship.runs import expand_with_run
from folnet.kinship.splits import (
    NOTHING,
    HeldOut,
    Part,
    all_chains,
    check_disjoint,
    compositions,
    needs,
    occurs,
    relations_of,
    targets,
)
from folnet.kinship.text import NAMES, TEMPLATES, WORDS, Story, answer_sentence, explain, question, tell

__all__ = [
    "COMPOSITIONS",
    "DISTRACTORS",
    "EDGES",
    "LENGTHS",
    "NAMES",
    "NOTHING",
    "NUM_EDGES",
    "QUERY",
    "RELATIONS",
    "RELATION_VOCAB_SIZE",
    "RULES",
    "TARGETS",
    "TARGET_NAMES",
    "TEMPLATES",
    "VOCAB_SIZE",
    "WORDS",
    "Deduction",
    "Fact",
    "HeldOut",
    "Kinship",
    "Problem",
    "Step",
    "Story",
    "Symbols",
    "all_chains",
    "answer_sentence",
    "check_disjoint",
    "compose",
    "compositions",
    "deduce",
    "explain",
    "needs",
    "occurs",
    "question",
    "relations_of",
    "symbols",
    "tell",
]

LENGTHS = range(2, 11)
"""Facts a chain may have."""

_ATTEMPTS = 50  # for one relation, before another is drawn
_TARGETS = 60  # before there is none to be had
_WORD = 2**32


@dataclasses.dataclass(frozen=True)
class Kinship:
    """Endless problems, each by its number.

    Attributes:
        seed: which problems; below 2^32.
        lengths: of chains, k, each as likely; 2 to 10.
        supporting: how many facts of the chain also have a way round, of two facts.
        irrelevant: how many facts lead to somebody who is of no use.
        disconnected: how many facts are about other people.
        held_out: what the parts "seen" and "held_out" are told apart by.
        part: "all": whatever comes. "seen": problems in which nothing held out occurs, for training.
            "held_out": problems that cannot be solved without a pair held out, or whose chain has a chain
            held out.
        generations: of a family, after its first couple.
        children: of a couple, at most; at least one.
        marriage: how often somebody marries, above 0 to 1.
    """

    seed: int = 0
    lengths: tuple[int, ...] = (2, 3)
    supporting: int = 0
    irrelevant: int = 0
    disconnected: int = 0
    held_out: HeldOut = NOTHING
    part: Part = "all"
    generations: int = 3
    children: int = 3
    marriage: float = 0.8

    def __post_init__(self) -> None:
        """Raises ValueError: a setting that does not fit, by name; held-out sets that leave no problem."""
        _check_number("seed", self.seed)
        if isinstance(self.lengths, int | str) or not tuple(self.lengths):
            raise ValueError(f"lengths is {self.lengths!r}, expected some numbers, such as (2, 3)")
        object.__setattr__(self, "lengths", tuple(self.lengths))
        for length in self.lengths:
            if not _is_integer(length) or length not in LENGTHS:
                raise ValueError(f"lengths has {length!r}, expected {LENGTHS[0]} to {LENGTHS[-1]}")
        bounds = {**dict.fromkeys(DISTRACTORS, (0, 8)), "generations": (2, 3), "children": (2, 4)}
        for name, (least, most) in bounds.items():
            value = getattr(self, name)
            if not _is_integer(value) or not least <= value <= most:
                raise ValueError(f"{name} is {value!r}, expected {least} to {most}")
        if self.supporting > min(self.lengths):
            raise ValueError(
                f"supporting is {self.supporting}, expected at most the facts of the shortest chain, "
                f"{min(self.lengths)}"
            )
        if not 0 < self.marriage <= 1:
            raise ValueError(f"marriage is {self.marriage!r}, expected above 0, at most 1")
        if self.part not in get_args(Part):
            raise ValueError(f"part is {self.part!r}, expected one of {', '.join(get_args(Part))}")
        if self.part != "all" and not self.held_out:
            raise ValueError(f"held_out is empty, expected pairs or chains: part is {self.part!r}")
        for length in self.lengths:
            if not targets(self.held_out, self.part, length):
                raise ValueError(
                    f"held_out leaves no problem of {length} facts, as lengths asks for: part is "
                    f"{self.part!r}, {len(self.held_out.pairs)} of {len(COMPOSITIONS)} pairs and "
                    f"{len(self.held_out.chains)} chains are held out"
                )

    @property
    def max_people(self) -> int:
        """The most people a problem of these settings has."""
        return max(self.lengths) + 1 + self.supporting + self.irrelevant + 2 * self.disconnected

    def __getitem__(self, index: int | np.integer) -> Problem:
        """The problem of a number below 2^32.

        Raises ValueError: `index` is out of range, or the settings ask for what hardly any family has.
        """
        _check_number("index", index)
        uniform = stream(np.random.default_rng(np.array((self.seed, index), np.uint32)))
        length = self.lengths[int(uniform() * len(self.lengths))]
        options = targets(self.held_out, self.part, length)
        for _ in range(_TARGETS):
            relation = options[int(uniform() * len(options))]
            for _ in range(_ATTEMPTS):
                problem = self._attempt(uniform, relation, length)
                if problem is not None:
                    return problem
        raise ValueError(
            f"index {index} has no problem of {length} facts that was found in {_TARGETS * _ATTEMPTS} "
            f"attempts; expected larger families (generations={self.generations}, "
            f"children={self.children}), fewer distractors, or less held_out "
            f"({len(self.held_out.pairs)} pairs, {len(self.held_out.chains)} chains, part {self.part!r})"
        )

    def draw(self, indices: Iterable[int | np.integer]) -> list[Problem]:
        """The problems of some numbers."""
        return [self[index] for index in indices]

    def story(self, index: int | np.integer, *, shuffle: bool = True) -> Story:
        """The problem of a number as text; names, wording and, to shuffle, order are drawn for the number."""
        return tell(self[index], np.random.default_rng((self.seed, int(index), 1)), shuffle=shuffle)

    def _attempt(self, uniform: Callable[[], float], relation: int, length: int) -> Problem | None:
        """One family and one chain; None if that came to nothing, or to something ambiguous."""
        family = self._tree.draw(uniform, self.marriage)
        target = draw_target(uniform, self._tree, family, relation, length)
        if target is None:
            return None
        pairs, runs = self.held_out.pair_numbers, self.held_out.chain_numbers
        alone = not (self.supporting or self.irrelevant or self.disconnected)
        by_run = self.part == "held_out" and bool(runs) and (not pairs or uniform() < 0.5)
        if by_run:
            chain = expand_with_run(uniform, self._tree, family, target, length, runs)
        else:
            rules = {"seen": {"avoid": pairs}, "held_out": {"include": pairs}}.get(self.part, {})
            chain = expand(uniform, self._tree, family, target, length, **rules, unique=alone)
        if chain is None:
            return None
        facts, kinds, people = chain.facts, ["chain"] * length, chain.people
        if not alone:
            distractors = {kind: getattr(self, kind) for kind in DISTRACTORS}
            added = add_distractors(uniform, self._tree, family, chain, **distractors)
            if added is None:
                return None
            for kind, new in added:
                facts = [*facts, *new]
                kinds += [kind] * len(new)
            for fact in facts[length:]:
                people |= 1 << fact.x | 1 << fact.y
        deduction = deduce(facts) if by_run or not alone else None  # else `expand` has seen to it
        if deduction is not None and deduction.between(target.x, target.y) != [relation]:
            return None
        ranks = [uniform() for _ in range(people.bit_count())]
        order = sorted(range(len(ranks)), key=ranks.__getitem__)
        number = dict(zip(listed(people), order, strict=True))

        # Each fact once: most of those in a proof are conclusions, and premises further on.
        every = (*facts, *(step.conclusion for step in chain.proof))
        renamed = {fact: Fact(number[fact.x], fact.relation, number[fact.y]) for fact in every}
        problem = Problem(
            num_people=len(number),
            facts=tuple([renamed[fact] for fact in facts]),
            kinds=tuple(kinds),
            query=(number[target.x], number[target.y]),
            answer=relation,
            proof=tuple([Step(renamed[a], renamed[b], renamed[c]) for a, b, c in chain.proof]),
        )
        if self.part == "seen" and occurs(problem, self.held_out, deduction):
            return None
        if self.part == "held_out" and not needs(problem, self.held_out):
            return None
        return problem

    @functools.cached_property
    def _tree(self) -> Tree:
        return tree(self.generations, self.children)


def _is_integer(value: object) -> TypeGuard[int | np.integer]:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _check_number(name: str, value: object) -> None:
    if not _is_integer(value) or not 0 <= value < _WORD:
        raise ValueError(f"{name} is {value!r}, expected a whole number from 0 to 2^32 - 1")
