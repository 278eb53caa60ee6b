"""Match3: which elements are part of a triple that sums to 0 modulo M? Sanford, Hsu and Telgarsky (2023).

An element is right if two others of the set complete the sum. Whether a triple of values belongs to the test
depends on its values alone, so that no permutation of a training problem tests it. Training asks nothing
about elements that have a triple of the test; the test asks about those that have no other triple, and about
those without any.

The table of held-out triples has every value equally often (`HELD_OUT`), and the test asks about so many of
the elements without a triple (`ASKED`) that answers are as frequent as in training: neither a value nor a
frequency says what the answer of the test is.

Models are compared on larger sets, all the same. In the first search of learning rates, models that learned
what training asks (.97 to 1.00 of "sets") answered the held-out triples like a constant: .50 for attention to
pairs with three rates, and through virtual entities with two.
"""

import itertools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from experiments.reasoning.tasks.base import TRAIN, Kind, Problems, Task

MODULUS = 17
SIZES = {TRAIN: 7, "sets": 7, "triples": 7, "sets_of_10": 10}
"""Numbers of elements, of which some are right and some are not."""
# Found by a search in random order; what matters is that every value is in exactly three of them.
HELD_OUT = (
    *((0, 1, 16), (0, 2, 15), (0, 3, 14), (1, 4, 12), (1, 5, 11), (2, 6, 9), (2, 7, 8), (3, 4, 10)),
    *((3, 5, 9), (4, 6, 7), (5, 13, 16), (6, 12, 16), (7, 13, 14), (8, 11, 15), (8, 12, 14), (9, 10, 15)),
    (10, 11, 13),
)
"""The triples of values for the test: 17 of the 40 that sum to 0 and have different values.

Of the 17 pairs of values that complete the sum of a value, in either order, 6 are for the test, whichever the
value.
"""
ASKED = 0.52
"""How likely the split "triples" asks about an element without any triple."""


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
    measure: ClassVar[str] = "sets_of_10"

    def draw(self, key: PRNGKeyArray, count: int, split: str = TRAIN) -> Problems:
        """See `Task.draw`."""
        for_values, for_asked = jax.random.split(key)
        values = jax.random.randint(for_values, (count, SIZES[split]), 0, MODULUS)
        learned, held_out = matches(values)
        if split == "triples":
            asked = held_out | jax.random.bernoulli(for_asked, ASKED, values.shape)
            targets = jnp.where(learned | ~asked, -1, held_out)
        else:
            targets = jnp.where(held_out, -1, learned)
        return Problems(values, targets.astype(jnp.int32))


TASKS = (Match3(),)


def table() -> Bool[np.ndarray, "17 17 17"]:
    """Returns whether a triple of values, in any order, is held out."""
    found = np.zeros((MODULUS,) * 3, bool)
    for triple in HELD_OUT:
        for order in itertools.permutations(triple):
            found[order] = True
    return found


def matches(values: Int[Array, "B N"]) -> tuple[Bool[Array, "B N"], Bool[Array, "B N"]]:
    """Returns whether each element is part of a learned triple of sum 0, and of one that is held out."""
    size = values.shape[1]
    triples = np.asarray([*itertools.combinations(range(size), 3)])
    first, second, third = (values[:, triples[:, place]] for place in range(3))
    sums_to_0 = (first + second + third) % MODULUS == 0
    apart = jnp.asarray(table())[first, second, third]
    part_of = (triples[:, :, None] == np.arange(size)).any(axis=1)  # triples x elements

    def parts(of_split: Array) -> Array:
        return ((sums_to_0 & of_split)[..., None] & part_of[None]).any(axis=1)

    return parts(~apart), parts(apart)
