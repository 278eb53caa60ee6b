"""Chains of facts from one person of a family to another, and facts beside them.

A chain starts as the fact that is asked for, (x, y). One fact of it after another is expanded into two, (x,
z) and (z, y), that a rule composes back and that are true in the family, until there are k. Read backwards
the expansions are a proof. Everyone on a chain is a different person.
"""

import dataclasses
import itertools
from collections.abc import Callable, Set

import numpy as np

from folnet.kinship.families import Family, People, Tree, listed, pick
from folnet.kinship.rules import NUM_EDGES, Fact, Pair, Step, conclusions

_AHEAD = 128  # numbers drawn at once: one costs a tenth of what it would cost alone

Triple = tuple[int, int, int]
"""A fact as a plain tuple, which is equal to it and made in a third of the time."""


def stream(generator: np.random.Generator) -> Callable[[], float]:
    """Numbers in [0, 1), one a call, the same for the same generator."""
    drawn = (generator.random(_AHEAD).tolist() for _ in itertools.repeat(None))
    return itertools.chain.from_iterable(drawn).__next__


@dataclasses.dataclass(slots=True)
class Chain:
    """A chain under construction; people are numbers of the tree.

    The facts lead from the first person of the question to the second, in order; so do the compositions of
    the proof, the last of which concludes what was asked for. `people` is who is on it.
    """

    facts: list[Fact]
    proof: list[Step]
    people: People


def draw_target(
    uniform: Callable[[], float], tree: Tree, family: Family, relation: int, length: int
) -> Fact | None:
    """Two members of a family, the second of them the `relation` of the first; None if it has no such two.

    Each such two are as likely, but for those among whose kin there are too few people for a chain of the
    length, whatever the chain: a long chain hardly ever starts with the youngest.
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
        while others:  # `listed`, written out: half the time of a problem would be spent here
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
    """A chain that composes to `target`.

    At each step the fact to expand is one of those that can be, each as likely; so is the rule among those
    that apply, and so is the third person among those it allows. No expansion comes from the pairs of
    relations to `avoid`; one, at a step drawn at random, comes from those to `include`, if there are any. A
    `unique` chain composes to nothing else.

    Returns:
        The chain; None if one has been begun that cannot be continued, or that may not be.
    """
    members, women = family
    thirds, kinds = tree.thirds, tree.kinds
    root: Triple = tuple(target)  # plain ones: most long chains come to nothing
    parts: dict[Triple, tuple[Triple, Triple]] = {}
    people = 1 << target.x | 1 << target.y
    free = members & ~people
    step_included = int(uniform() * (length - 1)) if include else -1
    open_facts = [root]  # what cannot be expanded once cannot be later: who is in the chain stays in it
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
) -> list[tuple[str, tuple[Fact, ...]]] | None:
    """True facts of the family that are not needed, each with people who are not in the story yet.

    So many facts of the chain get a `supporting` way round: two facts over a new person that compose to it.
    `irrelevant` ones join somebody in the story to somebody new, in either direction: dead ends.
    `disconnected` ones are of two people who have nothing to do with the others of the story.

    Returns:
        Kind and facts, a pair each; None if the family has no room for them.
    """
    added: list[tuple[str, tuple[Fact, ...]]] = []
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
    for kind in ["irrelevant"] * irrelevant + ["disconnected"] * disconnected:
        free = family.members & ~people
        sides = (free, free)
        if kind == "irrelevant":
            sides = (people, free) if uniform() < 0.5 else (free, people)
        pair = _told(uniform, tree, *sides)
        if pair is None:
            return None
        people |= 1 << pair[0] | 1 << pair[1]
        added.append((kind, (fact(*pair),)))
    return added


def _expansion(
    uniform: Callable[[], float], tree: Tree, family: Family, facts: list[Triple], people: People
) -> tuple[Triple, int] | None:
    """One of some facts that can be expanded, and over whom; those tried in vain are taken off the list."""
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
    """Somebody free over whom two facts compose to that of x and y, by each rule that has any."""
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


def _told(uniform: Callable[[], float], tree: Tree, starts: People, ends: People) -> tuple[int, int] | None:
    """Somebody and a relative of whom a story can tell, out of two sets; None if there are no such two."""
    options = listed(starts)
    while options:
        x = options.pop(int(uniform() * len(options)))
        kinds = [people for kind in tree.relatives[x][: NUM_EDGES // 2] if (people := kind & ends)]
        if kinds:
            return x, pick(kinds[int(uniform() * len(kinds))], uniform())
    return None
