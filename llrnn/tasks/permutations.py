"""Small finite groups as permutations: S_n, A_n, Z_n and D_n with their multiplication tables."""

import dataclasses
import functools
import itertools
import math
import re

import numpy as np
from jaxtyping import Int

MAX_ORDER = 1000


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """A finite group, its elements numbered in lexicographic order of their permutations; 0 is the identity.

    Attributes:
      name: the name of the group, such as "S5".
      permutations: element g maps point i to `permutations[g, i]`.
      table: the multiplication table; `table[a, b]` is the product ab, that is first b and then a.
    """

    name: str
    permutations: Int[np.ndarray, "order degree"]
    table: Int[np.ndarray, "order order"]

    @property
    def order(self) -> int:
        """The number of elements."""
        return len(self.permutations)

    def power(self, element: int, exponent: int) -> int:
        """Returns the number of the element that is `element` to the power `exponent`, at least 0."""
        result = 0
        for _ in range(exponent):
            result = int(self.table[element, result])
        return result

    def element_orders(self) -> Int[np.ndarray, "order"]:
        """Returns the order of each element g, the least n >= 1 with g^n = 1."""
        orders = np.zeros(self.order, int)
        power = np.arange(self.order)
        for n in range(1, self.order + 1):
            orders[(orders == 0) & (power == 0)] = n
            power = self.table[np.arange(self.order), power]
        return orders

    def generated(self, elements: tuple[int, ...]) -> frozenset[int]:
        """Returns the elements of the subgroup that the given elements generate."""
        found, new = {0}, {0}
        while new:
            new = {int(self.table[g, h]) for g in elements for h in new} - found
            found |= new
        return frozenset(found)


@functools.cache
def group(name: str) -> Group:
    """Returns the group of a name, a letter and a number n.

    S stands for all permutations of n points, A for the even ones, Z for the rotations of n points on a
    circle, D for their rotations and reflections (order 2n).

    Raises:
      ValueError: the name does not have this form, or the order is 1 or above 1000.
    """
    match = re.fullmatch(r"([SAZD])([1-9][0-9]{0,3})", name) if isinstance(name, str) else None
    if match is None:
        raise ValueError(
            f"group: got {name!r}, expected S, A, Z or D and a number, such as 'S5', 'A5', 'Z7' or 'D4'"
        )
    family, n = match[1], int(match[2])
    factorial = math.factorial(min(n, 10))  # 10! exceeds MAX_ORDER already
    order = {"S": factorial, "A": factorial // 2, "Z": n, "D": 2 * n}[family]
    if order < 2 or (family == "D" and n < 3):
        raise ValueError(f"group: got {name!r}, expected at least 2 elements, and at least 3 points for D")
    if order > MAX_ORDER:
        raise ValueError(f"group: got {name!r}, expected at most {MAX_ORDER} elements")
    permutations = np.array(sorted(_permutations(family, n)), dtype=np.int32).reshape(-1, n)
    number = {p.tobytes(): i for i, p in enumerate(permutations)}
    # (ab)(i) = a(b(i)), so row a of the table indexes a by every b.
    table = np.array([[number[ab.tobytes()] for ab in a[permutations]] for a in permutations], dtype=np.int32)
    return Group(name, permutations, table)


def _permutations(family: str, n: int) -> set[tuple[int, ...]]:
    if family in "SA":
        return {p for p in itertools.permutations(range(n)) if family == "S" or _is_even(p)}
    rotations = {tuple((i + k) % n for i in range(n)) for k in range(n)}
    reflections = {tuple((k - i) % n for i in range(n)) for k in range(n)}
    return rotations if family == "Z" else rotations | reflections


def _is_even(permutation: tuple[int, ...]) -> bool:
    return sum(a > b for a, b in itertools.combinations(permutation, 2)) % 2 == 0
