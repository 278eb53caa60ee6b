"""Random families: generations, marriages, children, and everyone's relation to everyone.

A family is drawn from one large family tree, the `Tree`, by leaving out some marriages and some children. The
genderless relation of two people is therefore the same in every family that includes them and can be
tabulated; a family consists of two sets of people, `members` and `women`. Sets are the bits of an integer, so
the people who can stand between x and y are one intersection. This makes thousands of problems per second
possible.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from folnet.kinship.rules import KINDS, RULES

People = int
"""A set of people: bit i for person i."""

_BITS = 53  # random bits in a random number


class Family(NamedTuple):
    """The members of a family, and the women among them."""

    members: People
    women: People


class Between(NamedTuple):
    """The people who can stand between x and y under one rule; kinds of x to them and of them to y."""

    first: int
    second: int
    people: People


@dataclasses.dataclass(frozen=True)
class Tree:
    """The largest family: a couple, `generations` generations of descendants, and everyone's spouse.

    Spouses come from outside the family and have no parents, as in CLUTRR. Each couple has `children`
    children.
    """

    generations: int
    children: int

    @functools.cached_property
    def parents(self) -> tuple[tuple[int, int] | None, ...]:
        """The two parents of each person, None for spouses from outside.

        For every even i, person i + 1 is the spouse of person i. Parents precede their children.
        """
        parents: list[tuple[int, int] | None] = [None, None]
        level = [0]
        for _ in range(self.generations):
            following = []
            for person in level:
                for _ in range(self.children):
                    following.append(len(parents))
                    parents += [(person, person + 1), None]
            level = following
        return tuple(parents)

    @functools.cached_property
    def kinds(self) -> tuple[tuple[int, ...], ...]:
        """[x][y]: what y is to x in `KINDS`, by parents and marriages alone; -1 if it has no name."""
        numbers = {None: -1, **{kind: number for number, kind in enumerate(KINDS)}}
        return tuple(tuple(numbers[self._kind(x, y)] for y in self._everyone) for x in self._everyone)

    @functools.cached_property
    def relatives(self) -> tuple[tuple[People, ...], ...]:
        """[x][kind]: the people who are that to x."""
        return _sets(self.kinds)

    @functools.cached_property
    def between(self) -> tuple[tuple[tuple[Between, ...], ...], ...]:
        """[x][y]: the ways to derive what y is to x with a rule, from true relations to a third person."""
        towards = _sets(zip(*self.kinds, strict=True))  # [y][kind]: the people to whom y is that
        rules: dict[int, list[tuple[int, int]]] = {}
        for (first, second), result in RULES.items():
            rules.setdefault(KINDS.index(result), []).append((KINDS.index(first), KINDS.index(second)))

        def ways(x: int, y: int) -> Iterator[Between]:
            for first, second in rules.get(self.kinds[x][y], ()):
                people = self.relatives[x][first] & towards[y][second]
                if people:
                    yield Between(first, second, people)

        return tuple(tuple(tuple(ways(x, y)) for y in self._everyone) for x in self._everyone)

    @functools.cached_property
    def thirds(self) -> tuple[tuple[tuple[People, tuple[People, ...]], ...], ...]:
        """[x][y]: everybody who can stand between x and y, and the people of each way in `between`."""
        sets = [[tuple(way.people for way in ways) for ways in row] for row in self.between]
        return tuple(tuple((functools.reduce(operator.or_, some, 0), some) for some in row) for row in sets)

    @functools.cached_property
    def roomy(self) -> Callable[[int, int], tuple[tuple[int, People], ...]]:
        """(kind, length): people x, each with the people who are that to x and far enough away.

        Far enough means that the complete tree has room for a chain of `length` facts between them.
        """

        @functools.cache
        def found(kind: int, length: int) -> tuple[tuple[int, People], ...]:
            pairs = (
                (x, sum(1 << y for y in listed(kinds[kind]) if self.room[x][y].bit_count() > length))
                for x, kinds in enumerate(self.relatives)
            )
            return tuple((x, others) for x, others in pairs if others)

        return found

    @functools.cached_property
    def room(self) -> tuple[tuple[People, ...], ...]:
        """[x][y]: x, y, everybody who can stand between them, and so on recursively."""
        room = [[1 << x | 1 << y for y in self._everyone] for x in self._everyone]
        ways = [
            (x, y, [z for way in some for z in listed(way.people)])
            for x, row in enumerate(self.between)
            for y, some in enumerate(row)
            if some
        ]
        ways.sort(key=lambda way: len(way[2]))
        grown = True
        while grown:
            grown = False
            for x, y, thirds in ways:
                people = room[x][y]
                for z in thirds:
                    people |= room[x][z] | room[z][y]
                if people != room[x][y]:
                    room[x][y] = people
                    grown = True
        return tuple(map(tuple, room))

    def relation(self, x: int, y: int, family: Family) -> int:
        """Returns what y is to x, by number with gender; negative if there is no name for it."""
        kind = self.kinds[x][y]
        return -1 if kind < 0 else 2 * kind + (family.women >> y & 1)

    def draw(self, uniform: Callable[[], float], marriage: float) -> Family:
        """Draws a random family, whose couples have from one to `children` children.

        `uniform` returns a number in [0, 1) per call; `marriage` is the probability that a child marries.
        """
        members, couples, offspring, children = 3, [0], self.offspring, self.children
        for _ in range(self.generations):
            married = []
            for couple in couples:
                born = offspring[couple]
                for person in born[: int(uniform() * children) + 1]:
                    if uniform() < marriage:
                        members |= 3 << person
                        married.append(person)
                    else:
                        members |= 1 << person
            couples = married
        chosen = 0
        for _ in range(0, len(offspring), _BITS):
            chosen = chosen << _BITS | int(uniform() * 2**_BITS)
        descendants = self._descendants
        chosen &= descendants
        women = chosen | (chosen ^ descendants) << 1
        return Family(members, members & women)

    @functools.cached_property
    def offspring(self) -> tuple[tuple[int, ...], ...]:
        """The children of each person, as numbers."""
        return tuple(
            tuple(child for child in self._everyone if person in (self.parents[child] or ()))
            for person in self._everyone
        )

    @functools.cached_property
    def _descendants(self) -> People:
        """Everyone but the spouses from outside: even numbers."""
        return sum(1 << person for person in self._everyone if person % 2 == 0)

    @property
    def _everyone(self) -> range:
        return range(len(self.parents))

    def _kind(self, x: int, y: int) -> str | None:
        """Returns what y is to x."""
        parents = self.parents

        def siblings(a: int, b: int) -> bool:
            return a != b and parents[a] is not None and parents[a] == parents[b]

        above_x, above_y = parents[x] or (), parents[y] or ()
        tests = {
            "child": x in above_y,
            "parent": y in above_x,
            "spouse": x // 2 == y // 2,
            "sibling": siblings(x, y),
            "grandchild": any(x in (parents[p] or ()) for p in above_y),
            "grandparent": any(y in (parents[p] or ()) for p in above_x),
            "parent's sibling": any(siblings(p, y) for p in above_x),
            "child-in-law": x in (parents[y ^ 1] or ()),
            "parent-in-law": y in (parents[x ^ 1] or ()),
            "sibling's child": any(siblings(x, p) for p in above_y),
        }
        return None if x == y else next((kind for kind, holds in tests.items() if holds), None)


def _sets(kinds: Iterable[Sequence[int]]) -> tuple[tuple[People, ...], ...]:
    """[row][kind]: the indices of a row's entries of that kind."""
    table = []
    for row in kinds:
        sets = [0] * len(KINDS)
        for place, kind in enumerate(row):
            if kind >= 0:
                sets[kind] |= 1 << place
        table.append(tuple(sets))
    return tuple(table)


@functools.cache
def tree(generations: int, children: int) -> Tree:
    """Returns a tree; cached, so its tables are computed once."""
    return Tree(generations, children)


def pick(people: People, chance: float) -> int:
    """Picks one of some people uniformly, given a random number `chance` in [0, 1)."""
    for _ in range(int(chance * people.bit_count())):
        people &= people - 1
    return (people & -people).bit_length() - 1


def listed(people: People) -> list[int]:
    """Returns the people of a set, by number."""
    found = []
    while people:
        found.append((people & -people).bit_length() - 1)
        people &= people - 1
    return found
