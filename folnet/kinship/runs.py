"""Chains with given consecutive relations, for tests of held-out chains.

Only one chain in thousands contains a given run of relations, so rejection sampling is too slow. Instead, a
shorter chain is drawn, and a fact that the run composes to is replaced by the run, over people of the family
who are related in this way.
"""

import functools
import itertools
from collections.abc import Callable

from folnet.kinship.chains import Chain, expand
from folnet.kinship.families import Family, People, Tree, listed
from folnet.kinship.rules import COMPOSITIONS, KINDS, Fact, Step

Run = tuple[int, ...]
"""Relations of consecutive facts, by number."""

Composed = tuple[int, int, int]
"""(start, middle, end) of one composition in a run: the facts from start to middle with those from middle to
end."""


@functools.cache
def bracketings(run: Run) -> dict[int, tuple[Composed, ...]]:
    """Returns what a run of at least one relation composes to, with one sequence of compositions for each."""
    found: dict[tuple[int, int], dict[int, tuple[Composed, ...]]] = {
        (place, place + 1): {relation: ()} for place, relation in enumerate(run)
    }
    for size in range(2, len(run) + 1):
        for start in range(len(run) - size + 1):
            end = start + size
            ways = found.setdefault((start, end), {})
            for middle in range(start + 1, end):
                for first, before in found[start, middle].items():
                    for second, after in found[middle, end].items():
                        result = COMPOSITIONS.get((first, second))
                        if result is not None:
                            ways.setdefault(result, (*before, *after, (start, middle, end)))
    return found[0, len(run)]


def possible(run: Run) -> bool:
    """Returns whether a family may contain such a chain, judging by every two consecutive facts.

    A spouse's spouse is oneself, and a spouse is of the other gender.
    """
    return not any(
        KINDS[second // 2] == "spouse" and (KINDS[first // 2] == "spouse" or first % 2 == second % 2)
        for first, second in itertools.pairwise(run)
    )


@functools.cache
def by_length(runs: frozenset[Run]) -> dict[int, dict[int, list[Run]]]:
    """Returns [length][relation]: the runs of that length that compose to that relation."""
    found: dict[int, dict[int, list[Run]]] = {}
    for run in sorted(runs):
        for relation in bracketings(run):
            found.setdefault(len(run), {}).setdefault(relation, []).append(run)
    return found


def expand_with_run(
    uniform: Callable[[], float],
    tree: Tree,
    family: Family,
    target: Fact,
    length: int,
    runs: frozenset[Run],
) -> Chain | None:
    """Draws a chain of `length` facts that composes to `target` and contains one of `runs`.

    The length of the run is drawn first, uniformly, then one of the runs that fit.

    Returns:
        The chain, whose proof only has true conclusions; None if this family or the drawn run has none.
    """
    lengths = [size for size in by_length(runs) if size <= length]
    if not lengths:
        return None
    size = lengths[int(uniform() * len(lengths))]
    composing = by_length(runs)[size]
    chain = expand(uniform, tree, family, target, length - size + 1)
    if chain is None:
        return None
    places = [place for place, fact in enumerate(chain.facts) if fact.relation in composing]
    if not places:
        return None
    place = places[int(uniform() * len(places))]
    replaced = chain.facts[place]
    fitting = composing[replaced.relation]
    run = fitting[int(uniform() * len(fitting))]
    path = _path(uniform, tree, family, (replaced.x,), replaced.y, run, chain.people)
    if path is None:
        return None

    def fact(start: int, end: int) -> Fact:
        x, y = path[start], path[end]
        return Fact(x, tree.relation(x, y, family), y)

    steps = []
    for start, middle, end in bracketings(run)[replaced.relation]:
        step = Step(fact(start, middle), fact(middle, end), fact(start, end))
        if COMPOSITIONS.get((step.first.relation, step.second.relation)) != step.conclusion.relation:
            return None  # the rule of thumb is wrong here
        steps.append(step)
    facts = [fact(start, start + 1) for start in range(len(run))]
    people = chain.people
    for person in path:
        people |= 1 << person
    return Chain([*chain.facts[:place], *facts, *chain.facts[place + 1 :]], [*steps, *chain.proof], people)


def _path(
    uniform: Callable[[], float],
    tree: Tree,
    family: Family,
    path: tuple[int, ...],
    end: int,
    run: Run,
    people: People,
) -> tuple[int, ...] | None:
    """Extends a path to `end` by the relations of a run, over people not yet taken; None if impossible."""
    relation = run[len(path) - 1]
    if len(path) == len(run):
        return (*path, end) if tree.relation(path[-1], end, family) == relation else None
    members, women = family
    ahead = tree.relatives[path[-1]][relation >> 1] & members & ~people
    options = listed(ahead & women if relation & 1 else ahead & ~women)
    while options:
        person = options.pop(int(uniform() * len(options)))
        found = _path(uniform, tree, family, (*path, person), end, run, people | 1 << person)
        if found is not None:
            return found
    return None
