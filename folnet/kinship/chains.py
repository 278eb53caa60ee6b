"""Chains of facts from one person of a family to another, and distractors.

A chain starts as the fact to ask for, (x, y). Repeatedly, one of its facts is expanded into two, (x, z) and
(z, y), that a rule composes back and that are true in the family, until there are k facts. In reverse order
the expansions are a proof. Everyone on a chain is a different person.
"""

import dataclasses
import itertools
from collections.abc import Callable, Set

import numpy as np

from folnet.kinship.families import Family, People, Tree, listed, pick
from folnet.kinship.problems import Distractor
from folnet.kinship.rules import NUM_EDGES, Fact, Pair, Step, conclusions

_AHEAD = 128  # numbers drawn at a time, at a tenth of the cost per number

Triple = tuple[int, int, int]
"""A fact as a plain tuple, which compares equal to it and is created in a third of the time."""


def stream(generator: np.random.Generator) -> Callable[[], float]:
    """Returns a function that draws a number in [0, 1) per call, determined by the generator."""
    drawn = (generator.random(_AHEAD).tolist() for _ in itertools.repeat(None))
    return itertools.chain.from_iterable(drawn).__next__


@dataclasses.dataclass(slots=True)
class Chain:
    """A chain under construction; people are numbers of the tree.

    Facts lead from the question's first person to its second, in order. The last composition of the proof
    concludes the answer. `people` is the set of everyone on the chain.
    """

    facts: list[Fact]
    proof: list[Step]
    people: People


def draw_target(
    uniform: Callable[[], float], tree: Tree, family: Family, relation: int, length: int
) -> Fact | None:
    """Draws two members of a family, the second being the `relation` of the first; None if there are none.

    All such pairs are equally likely, except those with too few relatives in between for a chain of this
    length: long chains hardly ever start with the youngest generation.
    """
    kind = relation >> 1
    members, women = family
    wanted = members & women if relation & 1 else members & ~women
    found = []
    for x, possible in tree.roomy(kind, length):
        others = possible & wanted
        if not others or not members >> x & 1:
            continue
        room = tree.room[x]
        while others:  # `listed` inlined: this loop takes half the time of a problem
            y = (others & -others).bit_length() - 1
            others &= others - 1
            if (room[y] & members).bit_count() > length:
                found.append((x, y))
    if not found:
        return None
    x, y = found[int(uniform() * len(found))]
    return Fact(x, relation, y)


def expand(
    uniform: Callable[[], float],
    tree: Tree,
    family: Family,
    target: Fact,
    length: int,
    *,
    avoid: Set[Pair] = frozenset(),
    include: Set[Pair] = frozenset(),
    unique: bool = False,
) -> Chain | None:
    """Draws a chain that composes to `target`.

    Each step draws a fact among those that can be expanded, a rule among those that apply, and a third person
    among those it allows, each uniformly. No expansion uses a pair of relations in `avoid`; one, at a random
    step, uses a pair in `include` if that is not empty. A `unique` chain composes to nothing else.

    Returns:
        The chain; None if the chain reached a dead end or is not allowed.
    """
    members, women = family
    thirds, kinds = tree.thirds, tree.kinds
    root: Triple = tuple(target)  # plain tuples, since most long chains are discarded
    parts: dict[Triple, tuple[Triple, Triple]] = {}
    people = 1 << target.x | 1 << target.y
    free = members & ~people
    step_included = int(uniform() * (length - 1)) if include else -1
    open_facts = [root]  # a fact that cannot be expanded stays so, as people only get added
    for step in range(length - 1):
        included = step == step_included
        untried = open_facts.copy() if included else open_facts
        while untried:
            place = int(uniform() * len(untried))
            x, _, y = fact = untried[place]
            anybody, sets = thirds[x][y]
            if anybody & free:
                if avoid or included:
                    ways = _ways(tree, women, x, y, free, avoid, include if included else None)
                else:
                    ways = [some for way in sets if (some := way & free)]
                if ways:
                    break
            del untried[place]
        else:
            return None
        z = pick(ways[int(uniform() * len(ways))] if len(ways) > 1 else ways[0], uniform())
        first = (x, 2 * kinds[x][z] + (women >> z & 1), z)
        second = (z, 2 * kinds[z][y] + (women >> y & 1), y)
        parts[fact] = first, second
        open_facts.remove(fact)
        open_facts += first, second
        free &= ~(1 << z)
        people |= 1 << z
    leaves, waiting = [], [root]
    while waiting:
        fact = waiting.pop()
        if fact in parts:
            first, second = parts[fact]
            waiting += second, first
        else:
            leaves.append(fact)
    if unique and conclusions([relation for _, relation, _ in leaves]) != [target.relation]:
        return None
    facts = [Fact(*fact) for fact in leaves]
    named = {fact: fact for fact in facts} | {fact: Fact(*fact) for fact in parts}
    proof = [Step(named[first], named[second], named[fact]) for fact, (first, second) in parts.items()]
    return Chain(facts, proof[::-1], people)


def add_distractors(
    uniform: Callable[[], float],
    tree: Tree,
    family: Family,
    chain: Chain,
    *,
    supporting: int,
    irrelevant: int,
    disconnected: int,
) -> list[tuple[Distractor, tuple[Fact, ...]]] | None:
    """Draws true facts of the family that are not needed, each with people who are new to the story.

    For each of `supporting` facts of the chain, this adds a detour: two facts over a new person that compose
    to it. `irrelevant` facts are dead ends that connect somebody in the story to somebody new, in either
    direction. `disconnected` facts are about two people unrelated to the others in the story.

    Returns:
        Pairs of kind and facts; None if the family has too few people.
    """
    added: list[tuple[Distractor, tuple[Fact, ...]]] = []
    people = chain.people

    def fact(x: int, y: int) -> Fact:
        return Fact(x, tree.relation(x, y, family), y)

    once: list[Triple] = list(chain.facts)
    for _ in range(supporting):
        found = _expansion(uniform, tree, family, once, people)
        if found is None:
            return None
        edge, z = found
        once.remove(edge)
        people |= 1 << z
        added.append(("supporting", (fact(edge[0], z), fact(z, edge[2]))))
    counts: list[tuple[Distractor, int]] = [("irrelevant", irrelevant), ("disconnected", disconnected)]
    for kind in [kind for kind, count in counts for _ in range(count)]:
        free = family.members & ~people
        sides = (free, free)
        if kind == "irrelevant":
            sides = (people, free) if uniform() < 0.5 else (free, people)
        pair = _related(uniform, tree, *sides)
        if pair is None:
            return None
        people |= 1 << pair[0] | 1 << pair[1]
        added.append((kind, (fact(*pair),)))
    return added


def _expansion(
    uniform: Callable[[], float], tree: Tree, family: Family, facts: list[Triple], people: People
) -> tuple[Triple, int] | None:
    """Returns a fact that can be expanded and a third person; removes facts that cannot from the list."""
    free = family.members & ~people
    while facts:
        place = int(uniform() * len(facts))
        fact = facts[place]
        _, sets = tree.thirds[fact[0]][fact[2]]
        ways = [some for way in sets if (some := way & free)]
        if ways:
            chosen = ways[int(uniform() * len(ways))] if len(ways) > 1 else ways[0]
            return fact, pick(chosen, uniform())
        del facts[place]
    return None


def _ways(
    tree: Tree, women: People, x: int, y: int, free: People, avoid: Set[Pair], wanted: Set[Pair] | None
) -> list[People]:
    """Returns, for each rule that applies, the free people over whom two facts compose to that of x and y."""
    ways = []
    for first, second, between in tree.between[x][y]:
        possible = between & free
        following = 2 * second + (women >> y & 1)
        for woman in (0, 1):
            pair = (2 * first + woman, following)
            if pair in avoid or (wanted is not None and pair not in wanted):
                possible &= ~women if woman else women
        if possible:
            ways.append(possible)
    return ways


def _related(
    uniform: Callable[[], float], tree: Tree, starts: People, ends: People
) -> tuple[int, int] | None:
    """Draws a person and a relative that a story can mention, from two sets; None if there are none."""
    options = listed(starts)
    while options:
        x = options.pop(int(uniform() * len(options)))
        kinds = [people for kind in tree.relatives[x][: NUM_EDGES // 2] if (people := kind & ends)]
        if kinds:
            return x, pick(kinds[int(uniform() * len(kinds))], uniform())
    return None
