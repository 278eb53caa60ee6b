"""Relatives, and which two relations compose to a third (the setting of CLUTRR, Sinha et al. 2019).

A fact (x, r, y) says that y is the r of x: (Kim, son, Lee) is "Lee is the son of Kim". Composition follows
a path: (x, r, z) and (z, s, y) give (x, compose(r, s), y). A relation carries the gender of y only, so a
conclusion has the gender of its second premise.

The rules are those of CLUTRR. They are rules of thumb, not theorems: "child, then grandparent, is parent" is
wrong for a parent-in-law. `families` defines what is true in a family, by parents and marriages alone.
"""

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

_RELATIVES = {
    "child": ("son", "daughter"),
    "parent": ("father", "mother"),
    "spouse": ("husband", "wife"),
    "sibling": ("brother", "sister"),
    "grandchild": ("grandson", "granddaughter"),
    "grandparent": ("grandfather", "grandmother"),
    "parent's sibling": ("uncle", "aunt"),
    "child-in-law": ("son-in-law", "daughter-in-law"),
    "parent-in-law": ("father-in-law", "mother-in-law"),
    "sibling's child": ("nephew", "niece"),
}

KINDS = tuple(_RELATIVES)
"""Relations without gender. The first seven may occur in a story; all but "spouse" can be asked for."""

RELATIONS = tuple(itertools.chain(*_RELATIVES.values()))
"""Relations by number: 2 * kind + 1 if y is a woman."""

NUM_EDGES = 14
"""Number of relations that may occur in a story, which come first: those that are premises of some rule."""

EDGES = RELATIONS[:NUM_EDGES]

TARGETS = tuple(number for number, name in enumerate(RELATIONS) if name not in ("husband", "wife"))
"""Numbers of the relations that can be asked for: all conclusions of rules. The index is the class."""

TARGET_NAMES = tuple(RELATIONS[number] for number in TARGETS)
"""Names of the classes."""

RULES: Mapping[tuple[str, str], str] = {
    ("child", "child"): "grandchild",
    ("child", "spouse"): "child-in-law",
    ("child", "sibling"): "child",
    ("child", "parent's sibling"): "sibling",
    ("child", "grandparent"): "parent",
    ("parent", "child"): "sibling",
    ("parent", "parent"): "grandparent",
    ("parent", "sibling"): "parent's sibling",
    ("spouse", "parent"): "parent-in-law",
    ("spouse", "grandchild"): "grandchild",
    ("spouse", "child"): "child",
    ("sibling", "sibling"): "sibling",
    ("sibling", "grandparent"): "grandparent",
    ("sibling", "child"): "sibling's child",
    ("sibling", "parent"): "parent",
    ("grandchild", "sibling"): "grandchild",
}
"""Composition without gender: relation of x to z, relation of z to y -> relation of x to y."""

Pair = tuple[int, int]
"""Two relations by number, in the order of composition."""


class Fact(NamedTuple):
    """The statement that y is the `relation` of x, all by number."""

    x: int
    relation: int
    y: int


class Step(NamedTuple):
    """One composition of a proof: what is known of x and z, and of z and y, and what follows of x and y."""

    first: Fact
    second: Fact
    conclusion: Fact


def _gendered() -> dict[Pair, int]:
    """Returns the rules with gender: 64 pairs minus a son's husband and a daughter's wife."""
    pairs = {}
    for (first, second), result in RULES.items():
        a, b, c = (2 * KINDS.index(kind) for kind in (first, second, result))
        for z in (0, 1):
            for y in (0, 1):
                # As in CLUTRR, a spouse is of the other gender; the first premise gives the gender of z.
                if second != "spouse" or z != y:
                    pairs[a + z, b + y] = c + y
    return pairs


COMPOSITIONS: Mapping[Pair, int] = _gendered()
"""The 62 pairs of relations that compose, and their results."""


def number(name: str) -> int:
    """Returns a relation's number; raises ValueError if there is no such relation."""
    if name not in RELATIONS:
        raise ValueError(f"relation: got {name!r}, expected one of {', '.join(RELATIONS)}")
    return RELATIONS.index(name)


def compose(first: str, second: str) -> str | None:
    """Returns what two relations compose to, None without a rule; raises ValueError for unknown names."""
    result = COMPOSITIONS.get((number(first), number(second)))
    return None if result is None else RELATIONS[result]


class Deduction(NamedTuple):
    """Everything that follows from some facts.

    `facts` contains the given facts and all conclusions, as (x, relation, y). `used` contains the pairs of
    relations composed on the way: those of every two adjacent facts or conclusions that a rule composes.
    """

    facts: Set[tuple[int, int, int]]
    used: Set[Pair]

    def between(self, x: int, y: int) -> list[int]:
        """Returns what y is to x: relations by number, sorted."""
        return [relation for relation in range(len(RELATIONS)) if (x, relation, y) in self.facts]


def deduce(
    facts: Iterable[tuple[int, int, int]],
    without: Set[Pair] = frozenset(),
    rules: Mapping[Pair, int] = COMPOSITIONS,
) -> Deduction:
    """Composes facts by the rules until nothing new follows.

    Every two adjacent facts are considered once, when the later of them is processed. No one is their own
    relative, and pairs in `without` are not composed.
    """
    queue = list(dict.fromkeys(facts))
    known = set(queue)
    used: set[Pair] = set()
    after: dict[int, list[tuple[int, int]]] = {}
    before: dict[int, list[tuple[int, int]]] = {}
    for x, relation, y in queue:  # the loop appends to it
        meeting = [((relation, following), x, z) for following, z in after.get(y, ())]
        meeting += [((preceding, relation), w, y) for preceding, w in before.get(x, ())]
        for pair, start, end in meeting:
            result = rules.get(pair)
            if result is not None and start != end and pair not in without:
                used.add(pair)
                conclusion = (start, result, end)
                if conclusion not in known:
                    known.add(conclusion)
                    queue.append(conclusion)
        after.setdefault(x, []).append((relation, y))
        before.setdefault(y, []).append((relation, x))
    return Deduction(known, used)


def conclusions(chain: Sequence[int]) -> list[int]:
    """Returns what a chain of relations composes to, in any order of composition; sorted.

    This is what `deduce` finds between the chain's ends if everyone on it is a different person and nothing
    else is known, in a fraction of the time.
    """
    length = len(chain)
    after: list[list[tuple[int, int]]] = [[] for _ in chain]  # [start]: each end, and the relations up to it
    for start in range(length - 1, -1, -1):
        found = [0] * (length + 1)  # [end]: a set of relations, as bits
        found[start + 1] = 1 << chain[start]
        for middle in range(start + 1, length):
            if firsts := found[middle]:
                for end, seconds in after[middle]:
                    found[end] |= _composed(firsts, seconds)
        after[start] = [(end, some) for end, some in enumerate(found) if some]
    last = dict(after[0]).get(length, 0)
    return [relation for relation in range(len(RELATIONS)) if last >> relation & 1]


@functools.cache
def _composed(firsts: int, seconds: int) -> int:
    """Returns all compositions of a relation in one set and a relation in another; sets as bits."""
    found = 0
    for (first, second), result in COMPOSITIONS.items():
        if firsts >> first & 1 and seconds >> second & 1:
            found |= 1 << result
    return found
