"""The coalgebra !V of a finite-dimensional vector space V, by explicit formulas for formal sums of kets.

!V is spanned by |v1 .. vs>_P, "the s-th derivative of the Dirac at P along v1 .. vs", symmetric and linear in
the vectors (Murfet, "Logic and linear algebra: an introduction", section 5.3; "On Sweedler's cofree
cocommutative coalgebra"). This module computes with subsets and partitions of vectors and differentiates
nothing. The tests use it to check `denote`, which computes nested directional derivatives.

A formal sum is a tuple of `FormalKet`; coordinates are NumPy arrays of any dtype, exact ones included.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Shaped

type Coordinates = Shaped[np.ndarray, "d"]
type FormalSum = tuple["FormalKet", ...]


@dataclasses.dataclass(frozen=True, eq=False)
class FormalKet:
    """coefficient * |vectors>_point.

    Attributes:
      point: P.
      vectors: v1 .. vs.
      coefficient: a number of any type.
    """

    point: Coordinates
    vectors: tuple[Coordinates, ...] = ()
    coefficient: Any = 1


def formal(point: Coordinates, *vectors: Coordinates) -> FormalSum:
    """Returns |vectors>_point as a formal sum.

    Raises:
      ValueError: the point is not a vector, or a vector has another shape than the point.
    """
    point = np.asarray(point)
    arrays = tuple(np.asarray(vector) for vector in vectors)
    if point.ndim != 1 or any(array.shape != point.shape for array in arrays):
        shapes = [array.shape for array in arrays]
        raise ValueError(
            f"vectors: got shapes {shapes} with a point of shape {point.shape}, expected [d] for all"
        )
    return (FormalKet(point, arrays),)


def counit(kets: FormalSum) -> Any:
    """Applies weakening !V -> R, which maps |>_P to 1 and longer kets to 0."""
    return sum(ket.coefficient for ket in kets if not ket.vectors)


def dereliction(kets: FormalSum) -> Coordinates:
    """Applies dereliction !V -> V, which maps |>_P to P, |v>_P to v and longer kets to 0.

    Raises:
      ValueError: the sum is empty, so that its dimension is unknown.
    """
    if not kets:
        raise ValueError("kets: got an empty sum, expected at least one ket, which has a dimension")
    total = np.zeros_like(kets[0].point)
    for ket in kets:
        if len(ket.vectors) < 2:
            total = total + ket.coefficient * (ket.vectors[0] if ket.vectors else ket.point)
    return total


def contraction(kets: FormalSum, factors: int = 2) -> tuple[tuple[FormalKet, ...], ...]:
    """Applies contraction !V -> !V (x) .. (x) !V, which distributes the vectors of a ket over the factors.

    With two factors it maps |v1 .. vs>_P to sum_I |v_I>_P (x) |v_(not I)>_P over the subsets I of {1 .. s};
    with more, it is the iterated contraction. A term of the result is a tuple of one ket per factor; the
    first ket has the coefficient.

    Raises:
      ValueError: there are no factors.
    """
    if factors < 1:
        raise ValueError(f"factors: got {factors}, expected at least 1")
    terms = []
    for ket in kets:
        for hands in itertools.product(range(factors), repeat=len(ket.vectors)):
            dealt: list[list[Coordinates]] = [[] for _ in range(factors)]
            for hand, vector in zip(hands, ket.vectors, strict=True):
                dealt[hand].append(vector)
            first, *others = (FormalKet(ket.point, tuple(vectors)) for vectors in dealt)
            terms.append((dataclasses.replace(first, coefficient=ket.coefficient), *others))
    return tuple(terms)


def promotion(phi: Callable[[Coordinates, Sequence[Coordinates]], Coordinates], kets: FormalSum) -> FormalSum:
    """Applies the coalgebra map !V -> !W that lifts a linear map phi : !V -> W (Faa di Bruno's formula).

    It maps |v1 .. vs>_P to the sum of |phi|v_C1>_P, .., phi|v_Cl>_P>_Q over the partitions {C1 .. Cl} of the
    vectors, with Q = phi|>_P. phi(point, vectors) is the value of phi on |vectors>_point.
    """
    results = []
    for ket in kets:
        point = phi(ket.point, ())
        for partition in _partitions(ket.vectors):
            vectors = tuple(phi(ket.point, block) for block in partition)
            results.append(FormalKet(point, vectors, ket.coefficient))
    return tuple(results)


def codereliction(vector: Coordinates) -> FormalSum:
    """Applies codereliction V -> !V, which maps v to |v>_0."""
    return formal(np.zeros_like(vector), vector)


def deriving(kets: FormalSum, vector: Coordinates) -> FormalSum:
    """Applies the deriving map !V (x) V -> !V, which maps |v1 .. vs>_P (x) v to |v, v1 .. vs>_P."""
    return tuple(FormalKet(ket.point, (np.asarray(vector), *ket.vectors), ket.coefficient) for ket in kets)


def coordinates(kets: FormalSum) -> dict[tuple[tuple[Any, ...], tuple[int, ...]], Any]:
    """Returns the coordinates in the basis |e_i1 .. e_is>_P, i1 <= .. <= is, equal for equal elements.

    The keys are (coordinates of P, (i1, .., is)); coefficients equal to 0 are omitted.
    """
    total = {}
    for ket in kets:
        point = tuple(ket.point.tolist())
        for choice in itertools.product(*(range(len(vector)) for vector in ket.vectors)):
            coefficient = ket.coefficient
            for index, vector in zip(choice, ket.vectors, strict=True):
                coefficient = coefficient * vector[index]
            key = (point, tuple(sorted(choice)))
            total[key] = total.get(key, 0) + coefficient
    return {key: value for key, value in total.items() if value != 0}


def _partitions(items: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], ...]]:
    """Yields every partition of the items into non-empty blocks."""
    if not items:
        yield ()
        return
    first, *others = items
    for chosen in itertools.product((True, False), repeat=len(others)):
        block = (first, *itertools.compress(others, chosen))
        rest = itertools.compress(others, [not choice for choice in chosen])
        for partition in _partitions(tuple(rest)):
            yield (block, *partition)
