"""Match3: which elements are part of a triple that sums to 0 modulo M? Sanford, Hsu and Telgarsky (2023).

An element is right if two others of the set complete the sum. Whether a triple of values belongs to the test
depends on its values alone, so that no permutation of a training problem tests it. Training asks nothing
about elements that have a triple of the test; the test asks about those that have no other triple, and about
those without any.
"""

import itertools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from experiments.reasoning.tasks.base import TRAIN, Kind, Problems, Task

MODULUS = 17
SIZES = {TRAIN: 7, "sets": 7, "triples": 7, "sets_of_10": 10}
"""Numbers of elements, of which some are right and some are not."""


class Match3(Task):
    """Sets of numbers modulo `MODULUS`; two answers per element.

    The split "sets" draws new sets as training does, "triples" asks about triples of values that training
    never asks about, and "sets_of_10" about larger sets.
    """

    name: ClassVar[str] = "match3"
    kind: ClassVar[Kind] = "set"
    vocabulary: ClassVar[int] = MODULUS
    classes: ClassVar[int] = 2
    size: ClassVar[int] = SIZES[TRAIN]
    tests: ClassVar[tuple[str, ...]] = ("sets", "triples", "sets_of_10")
    measure: ClassVar[str] = "triples"

    def draw(self, key: PRNGKeyArray, count: int, split: str = TRAIN) -> Problems:
        """See `Task.draw`."""
        values = jax.random.randint(key, (count, SIZES[split]), 0, MODULUS)
        learned, held_out = matches(values)
        if split == "triples":
            targets = jnp.where(learned, -1, held_out)
        else:
            targets = jnp.where(held_out, -1, learned)
        return Problems(values, targets.astype(jnp.int32))


def is_held_out(first: Any, second: Any, third: Any) -> Any:
    """Whether triples of values, integers or arrays of them, belong to the test; the same for any order."""
    return (first**2 + second**2 + third**2) % 5 == 0


def matches(values: Int[Array, "B N"]) -> tuple[Bool[Array, "B N"], Bool[Array, "B N"]]:
    """Returns whether each element is part of a learned triple of sum 0, and of one that is held out."""
    size = values.shape[1]
    triples = np.asarray([*itertools.combinations(range(size), 3)])
    first, second, third = (values[:, triples[:, place]] for place in range(3))
    sums_to_0 = (first + second + third) % MODULUS == 0
    apart = is_held_out(first, second, third)
    part_of = (triples[:, :, None] == np.arange(size)).any(axis=1)  # triples x elements

    def parts(of_split: Array) -> Array:
        return ((sums_to_0 & of_split)[..., None] & part_of[None]).any(axis=1)

    return parts(~apart), parts(apart)
