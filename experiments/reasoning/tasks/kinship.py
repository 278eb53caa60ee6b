"""Kinship: how two people are related, given a chain of relatives between them.

The relations and the rules by which two of them compose are those of `folnet.kinship`, the setting of CLUTRR
(Sinha et al. 2019). Training has short chains, tests longer ones; `experiments.kinship` has problems with
families, distractors and stories. Only pairs between whom exactly one relation follows are asked about.

Axis letters: B batch; N people; R relations.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from experiments.reasoning.tasks.base import TRAIN, Kind, Problems, Task, of_split
from folnet.kinship.rules import COMPOSITIONS, NUM_EDGES, RELATIONS, TARGETS

LENGTHS = {TRAIN: (2, 3), "2": (2, 2), "3": (3, 3), "4": (4, 4), "6": (6, 6)}
"""The least and the most facts of a chain."""
NAMES = 16


def table() -> Bool[np.ndarray, "R R R"]:
    """Returns at [r, s, t] whether r and s compose to t."""
    found = np.zeros((len(RELATIONS),) * 3, bool)
    for (first, second), result in COMPOSITIONS.items():
        found[first, second, result] = True
    return found


def follows(chain: Int[Array, "K"]) -> Bool[Array, "K+1 K+1 R"]:
    """Returns which relations follow between the people of a chain, in any order of composition."""
    length, rules = chain.shape[0], jnp.asarray(table(), jnp.float32)
    known = [[jnp.zeros(len(RELATIONS))] * (length + 1) for _ in range(length + 1)]
    for start in range(length):
        known[start][start + 1] = jax.nn.one_hot(chain[start], len(RELATIONS))  # 0 for -1
    for span in range(2, length + 1):
        for start in range(length + 1 - span):
            stop = start + span
            parts = [
                jnp.einsum("r,s,rst->t", known[start][middle], known[middle][stop], rules)
                for middle in range(start + 1, stop)
            ]
            known[start][stop] = (jnp.stack(parts).sum(axis=0) > 0).astype(jnp.float32)
    return jnp.asarray(known) > 0


class Kinship(Task):
    """A chain of people; 18 answers. In training everything that follows along the chain is asked about."""

    name: ClassVar[str] = "kinship"
    kind: ClassVar[Kind] = "graph"
    vocabulary: ClassVar[int] = NAMES
    classes: ClassVar[int] = len(TARGETS)
    relations: ClassVar[int] = NUM_EDGES
    size: ClassVar[int] = (LENGTHS[TRAIN][1] + 1) ** 2
    tests: ClassVar[tuple[str, ...]] = ("2", "3", "4", "6")
    measure: ClassVar[str] = "4"

    def draw(self, key: PRNGKeyArray, count: int, split: str = TRAIN) -> Problems:
        """See `Task.draw`."""
        least, most = LENGTHS[split]
        for_chains, for_names = jax.random.split(key)

        def draw(key):
            for_length, for_chain = jax.random.split(key)
            length = jax.random.randint(for_length, (), least, most + 1)
            chain = expanded(for_chain, length, most)
            return chain, length, follows(chain)[:, :, np.asarray(TARGETS)]

        def belongs(drawn):
            _, length, found = drawn
            return jnp.sum(found[0, length]) == 1

        chains, lengths, found = of_split(for_chains, count, draw, belongs)
        people = np.arange(most + 1)
        apart = jnp.asarray(people[None] - people[:, None])[None]
        inside = jnp.asarray(people)[None, None] <= lengths[:, None, None]
        asked = inside & (apart > 1)
        if split != TRAIN:
            asked &= apart == most
        answers = jnp.where(asked & (jnp.sum(found, axis=-1) == 1), jnp.argmax(found, axis=-1), -1)
        along = jnp.pad(chains, ((0, 0), (0, 1)))[:, :, None]
        names = jnp.argsort(jax.random.uniform(for_names, (count, NAMES)))[:, : most + 1]
        return Problems(names, answers, jnp.where(inside & (apart == 1), along, -1))


TASKS = (Kinship(),)


def expanded(key: PRNGKeyArray, length: Int[Array, ""], most: int) -> Int[Array, "K"]:
    """Draws a chain of `length` relations, -1 behind them, from which an answer follows that is uniform.

    As in CLUTRR, a relation is replaced again and again by two that compose to it.
    """
    pairs = np.array([*COMPOSITIONS])
    makes = np.array([*COMPOSITIONS.values()])[None] == np.arange(len(RELATIONS))[:, None]
    start, *keys = jax.random.split(key, most)
    chain = jnp.full(most, -1).at[0].set(jax.random.choice(start, np.asarray(TARGETS)))
    places = jnp.arange(most)
    for number, step in enumerate(keys):
        for_place, for_rule = jax.random.split(step)
        can = jnp.asarray(makes.any(axis=1))[chain] & (chain >= 0)
        place = jax.random.categorical(for_place, jnp.where(can, 0.0, -jnp.inf))
        rule = jax.random.categorical(for_rule, jnp.where(jnp.asarray(makes)[chain[place]], 0.0, -jnp.inf))
        first, second = jnp.asarray(pairs)[rule]
        moved = jnp.where(places > place, jnp.roll(chain, 1), chain)
        longer = moved.at[place].set(first).at[place + 1].set(second)
        chain = jnp.where(number + 1 < length, longer, chain)
    return chain
