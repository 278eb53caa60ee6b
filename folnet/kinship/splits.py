"""Held-out compositions: what a training set never shows, so that a test can ask for it.

Two things can be held out. A *pair* of relations occurs in a problem if it is composed anywhere on the way to
everything that follows from the story, in any order. A *chain* of relations occurs in a problem if
consecutive facts on the path from the question's first person to its second have these relations.
"""

import dataclasses
import functools
from collections.abc import Iterable, Set
from typing import Literal

import numpy as np

from folnet.kinship.problems import Problem
from folnet.kinship.rules import (
    COMPOSITIONS,
    NUM_EDGES,
    RELATIONS,
    TARGETS,
    Deduction,
    Fact,
    Pair,
    deduce,
    number,
)
from folnet.kinship.runs import Run, bracketings, by_length, possible

Part = Literal["all", "seen", "held_out"]
"""All problems; those that show nothing held out; those that require something held out."""


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """What training never shows, by names of relations.

    Attributes:
        pairs: for instance ("son", "sister"): z is the son of x and y the sister of z.
        chains: two or more relations, such as ("husband", "son", "sister").
    """

    pairs: frozenset[tuple[str, str]] = frozenset()
    chains: frozenset[tuple[str, ...]] = frozenset()

    def __post_init__(self) -> None:
        """Raises ValueError for a pair that no rule composes or an impossible chain."""
        for name in ("pairs", "chains"):
            given = getattr(self, name)
            if isinstance(given, str) or not all(isinstance(run, tuple) for run in given):
                raise ValueError(
                    f"held_out.{name}: got {given!r}, expected a set of tuples of names of relations"
                )
            object.__setattr__(self, name, frozenset(given))
        for pair in sorted(self.pairs):
            if len(pair) != 2 or tuple(map(number, pair)) not in COMPOSITIONS:
                raise ValueError(f"held_out.pairs: got {pair}, expected two relations that a rule composes")
        for chain in sorted(self.chains):
            run = tuple(map(number, chain))
            if len(run) < 2 or not bracketings(run) or not possible(run):
                raise ValueError(
                    f"held_out.chains: got {chain}, expected two or more relations that may occur in "
                    "stories, that the rules compose and that a family may have"
                )

    def __bool__(self) -> bool:
        return bool(self.pairs or self.chains)

    @functools.cached_property
    def pair_numbers(self) -> frozenset[Pair]:
        return frozenset((number(first), number(second)) for first, second in self.pairs)

    @functools.cached_property
    def chain_numbers(self) -> frozenset[Run]:
        return frozenset(tuple(map(number, chain)) for chain in self.chains)

    def has_chain(self, relations: Run) -> bool:
        """Returns whether one of the chains occurs in a sequence of relations."""
        return any(
            relations[start : start + size] in self.chain_numbers
            for size in self._sizes
            for start in range(len(relations) - size + 1)
        )

    @functools.cached_property
    def _sizes(self) -> frozenset[int]:
        return frozenset(map(len, self.chains))

    @classmethod
    def draw_pairs(cls, seed: int, count: int) -> "HeldOut":
        """Draws 1 to 44 random pairs, such that every relation can still be concluded from another pair.

        Raises:
            ValueError: If `count` is out of range.
        """
        most = len(COMPOSITIONS) - len(TARGETS)
        if not 1 <= count <= most:
            raise ValueError(f"count: got {count}, expected 1 to {most} (every conclusion keeps one pair)")
        pairs = sorted(COMPOSITIONS)
        left = {result: list(COMPOSITIONS.values()).count(result) for result in TARGETS}
        chosen: list[Pair] = []
        for place in np.random.default_rng(seed).permutation(len(pairs)):
            result = COMPOSITIONS[pairs[place]]
            if len(chosen) < count and left[result] > 1:
                left[result] -= 1
                chosen.append(pairs[place])
        return cls(pairs=frozenset((RELATIONS[a], RELATIONS[b]) for a, b in chosen))

    @classmethod
    def draw_chains(cls, seed: int, length: int, fraction: float) -> "HeldOut":
        """Draws a fraction in (0, 1) of all chains of 2 to 4 relations, as CLUTRR does for its test set.

        Raises:
            ValueError: If `length` or `fraction` is out of range.
        """
        if not 2 <= length <= 4:
            raise ValueError(f"length: got {length}, expected 2 to 4")
        if not 0 < fraction < 1:
            raise ValueError(f"fraction: got {fraction}, expected above 0 and below 1")
        every = all_chains(length)
        order = np.random.default_rng(seed).permutation(len(every))
        chosen = order[: max(1, round(fraction * len(every)))]
        return cls(chains=frozenset(tuple(RELATIONS[r] for r in every[place]) for place in chosen))


NOTHING = HeldOut()
"""A `HeldOut` without pairs and chains."""


def relations_of(problem: Problem) -> Run:
    """Returns the relations on the path from the question's first person to its second, by number."""
    return tuple(fact.relation for fact in problem.chain)


def occurs(problem: Problem, held_out: HeldOut, deduction: Deduction | None = None) -> bool:
    """Returns whether anything held out occurs in a problem; `deduction`, if known, is all that follows."""
    if held_out.pairs:
        deduction = deduction or deduce(problem.facts)
        if not deduction.used.isdisjoint(held_out.pair_numbers):
            return True
    return held_out.has_chain(relations_of(problem))


def needs(problem: Problem, held_out: HeldOut) -> bool:
    """Returns whether a problem requires what is held out: a pair for its answer, or a chain in its path."""
    if held_out.pairs:
        left = deduce(problem.facts, without=held_out.pair_numbers)
        if Fact(problem.query[0], problem.answer, problem.query[1]) not in left.facts:
            return True
    return held_out.has_chain(relations_of(problem))


def compositions(problem: Problem) -> set[tuple[str, str]]:
    """Returns all pairs composed on the way to everything that follows from a problem's facts, by names."""
    return {(RELATIONS[a], RELATIONS[b]) for a, b in deduce(problem.facts).used}


def check_disjoint(train: Iterable[Problem], test: Iterable[Problem], held_out: HeldOut) -> None:
    """Checks that training shows nothing held out and that every test problem requires it.

    Raises:
        ValueError: For the first problem that violates this.
    """
    if not held_out:
        raise ValueError("held_out: got nothing, expected pairs or chains")
    sides = (
        ("train", "without anything", train, True, occurs),
        ("test", "that requires something", test, False, needs),
    )
    for name, verb, problems, wrong, look in sides:
        for place, problem in enumerate(problems):
            if look(problem, held_out) is wrong:
                chain = ", ".join(RELATIONS[relation] for relation in relations_of(problem))
                raise ValueError(f"{name}[{place}]: got {chain}, expected a problem {verb} held out")


@functools.cache
def all_chains(length: int) -> tuple[Run, ...]:
    """Returns every chain of two or more relations that a family may have and that composes to exactly one.

    There are 62 of two, 356 of three and 2,392 of four. Not all of them occur: a child's father's father is
    not a father, whatever the rules say, and three brothers in a row need a family with four children.
    """
    runs: dict[int, set[Run]] = {1: {(relation,) for relation in range(NUM_EDGES)}}
    expand: dict[int, list[Pair]] = {}
    for pair, result in COMPOSITIONS.items():
        expand.setdefault(result, []).append(pair)
    for size in range(2, length + 1):  # a run of `size` is a shorter run with one relation expanded into two
        shorter = runs[size - 1] | ({(target,) for target in TARGETS} if size == 2 else set())
        runs[size] = {
            (*run[:place], *pair, *run[place + 1 :])
            for run in shorter
            for place, relation in enumerate(run)
            for pair in expand.get(relation, ())
        }
    return tuple(sorted(run for run in runs[length] if len(bracketings(run)) == 1 and possible(run)))


def reachable(length: int, avoid: Set[Pair] = frozenset(), include: Set[Pair] = frozenset()) -> list[int]:
    """Returns the targets of chains that avoid some pairs and include at least one of others (if any)."""
    plain: list[set[int]] = [set(), set(range(NUM_EDGES))]
    marked: list[set[int]] = [set(), set()]
    for size in range(2, length + 1):
        now, with_one = set(), set()
        for (first, second), result in COMPOSITIONS.items():
            if (first, second) in avoid:
                continue
            for left in range(1, size):
                right = size - left
                if first in plain[left] and second in plain[right]:
                    now.add(result)
                    if (first, second) in include or first in marked[left] or second in marked[right]:
                        with_one.add(result)
        plain.append(now)
        marked.append(with_one)
    return sorted(marked[length] if include else plain[length])


@functools.cache
def targets(held_out: HeldOut, part: Part, length: int) -> tuple[int, ...]:
    """Returns the relations a part's problems of a length may ask for, judging by the rules alone; sorted."""
    if part == "seen":
        found = set(reachable(length, avoid=held_out.pair_numbers))
        if held_out.chains and length <= 3:  # few enough to enumerate; longer chains always leave some
            left = [run for run in all_chains(length) if not held_out.has_chain(run)]
            found &= {result for run in left for result in bracketings(run)}
        return tuple(sorted(found))
    if part == "held_out" and not held_out.chains:
        return tuple(reachable(length, include=held_out.pair_numbers))
    if part == "held_out" and not held_out.pairs:
        runs = by_length(held_out.chain_numbers)
        shorter = {result for size in runs if size < length for result in runs[size]}
        if not any(result < NUM_EDGES for result in shorter):  # only an entire chain can be held out
            return tuple(sorted(runs.get(length, ())))
    return tuple(reachable(length))
