"""RCC-8: how two regions are related, given two chains of related regions between them.

The eight relations of regions (Randell, Cui and Cohn 1992) compose to sets of relations: what may hold
between x and z, if R holds between x and y and S between y and z. The table is computed from all unions of
five unit intervals. Both chains have k relations; each leaves a set of relations open between its ends, and
problems are those whose two sets have exactly one relation in common. Training has short chains, tests longer
ones, in which single steps are as in training.

Problems are drawn without rejection: the answer uniformly, then the sets of both chains and from its end each
chain, so that all pairs of chains with this answer are equally likely.

Axis letters: B batch; N regions; S sets of relations.
"""

import functools
import itertools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from experiments.reasoning.tasks.base import TRAIN, Kind, Problems, Task

RELATIONS = ("DC", "EC", "PO", "TPP", "NTPP", "TPPi", "NTPPi", "EQ")
"""Disconnected, externally connected, partially overlapping, (non-)tangential proper part and inverses."""
CELLS = 5
LENGTHS = {TRAIN: (2, 3), "2": (2, 2), "3": (3, 3), "4": (4, 4), "5": (5, 5)}
"""The least and the most relations of a chain."""
NAMES = 16


def related(first: int, second: int) -> int:
    """Returns the number of the relation of two regions, unions of unit intervals given as bits."""
    with_neighbours = (first << 2) | (first << 1) | first  # of `first << 1`, so that 0 has a neighbour
    if first == second:
        return RELATIONS.index("EQ")
    if not first & second:
        return RELATIONS.index("EC" if with_neighbours & (second << 1) else "DC")
    if not first & ~second:
        return RELATIONS.index("TPP" if with_neighbours & ~(second << 1) else "NTPP")
    if not second & ~first:
        return RELATIONS.index({"TPP": "TPPi", "NTPP": "NTPPi"}[RELATIONS[related(second, first)]])
    return RELATIONS.index("PO")


@functools.cache
def table() -> Bool[np.ndarray, "8 8 8"]:
    """Returns at [r, s] the relations that r and s compose to."""
    regions = range(1, 1 << CELLS)
    relation = np.array([[related(first, second) for second in regions] for first in regions])
    found = np.zeros((8, 8, 8), bool)
    for through in range(len(regions)):
        for first, second in itertools.product(range(len(regions)), repeat=2):
            found[relation[first, through], relation[through, second], relation[first, second]] = True
    return found


class _Chains:
    """Chains of k relations other than EQ, by the set of relations that they compose to.

    Attributes:
        sets: the sets that chains of at most k relations compose to, [S, 8].
        ways: the numbers of chains of 1, 2, ..., k relations with each set, k arrays [S].
        after: the number of the set after one more relation, [S, 7].
    """

    def __init__(self, most: int):
        compose, relations = table(), len(RELATIONS) - 1
        numbers = {tuple(row): row.argmax() for row in np.eye(8, dtype=bool)[:relations]}
        self.sets = [np.asarray(row) for row in numbers]
        after: list[list[int]] = []
        while len(after) < len(self.sets):
            row = []
            for relation in range(relations):
                composed = compose[self.sets[len(after)], relation].any(axis=0)
                if tuple(composed) not in numbers:
                    numbers[tuple(composed)] = len(self.sets)
                    self.sets.append(composed)
                row.append(int(numbers[tuple(composed)]))
            after.append(row)
        self.after = np.array(after)
        self.ways = [np.zeros(len(self.sets))]
        self.ways[0][:relations] = 1
        for _ in range(most - 1):
            counts = np.zeros(len(self.sets))
            np.add.at(counts, self.after, self.ways[-1][:, None])
            self.ways.append(counts)

    def ends(self, length: int) -> np.ndarray:
        """Returns the logits of both chains' sets given the answer, [7, S * S]; no two leave EQ alone."""
        sets, ways = np.array(self.sets), self.ways[length - 1]
        common = sets[:, None] & sets[None]
        alone = common & (common.sum(axis=-1, keepdims=True) == 1)
        weights = alone * (ways[:, None] * ways[None])[..., None]
        return _log(np.moveaxis(weights, -1, 0)[:-1].reshape(len(RELATIONS) - 1, -1))

    def steps(self, length: int) -> np.ndarray:
        """Returns the logits of the set before the last relation, and of it, given the set, [S, S * 7]."""
        before = self.after[None] == np.arange(len(self.sets))[:, None, None]  # set, set before, relation
        return _log((before * self.ways[length - 2][None, :, None]).reshape(len(self.sets), -1))


def _log(weights: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(weights).astype(np.float32)


@functools.cache
def _chains() -> _Chains:
    return _Chains(max(most for _, most in LENGTHS.values()))


class RCC8(Task):
    """Two chains between two regions; all relations but EQ are answers.

    In training whatever follows along a chain is asked about, too.
    """

    name: ClassVar[str] = "rcc8"
    kind: ClassVar[Kind] = "graph"
    vocabulary: ClassVar[int] = NAMES
    classes: ClassVar[int] = 7
    relations: ClassVar[int] = 7
    size: ClassVar[int] = (2 * LENGTHS[TRAIN][1]) ** 2
    tests: ClassVar[tuple[str, ...]] = ("2", "3", "4", "5")
    measure: ClassVar[str] = "4"

    def draw(self, key: PRNGKeyArray, count: int, split: str = TRAIN) -> Problems:
        """See `Task.draw`."""
        least, most = LENGTHS[split]
        for_length, for_chains, for_names = jax.random.split(key, 3)
        lengths = range(least, most + 1)
        size = 2 * most
        drawn = [
            jax.vmap(functools.partial(draw_graph, length=length, size=size, spans=split == TRAIN))(
                jax.random.split(jax.random.fold_in(for_chains, length), count)
            )
            for length in lengths
        ]
        which = jax.random.randint(for_length, (count,), 0, len(lengths))[:, None, None]
        relations, targets = (
            jnp.select([which == number for number in range(len(lengths))], parts)
            for parts in zip(*drawn, strict=True)
        )
        names = jnp.argsort(jax.random.uniform(for_names, (count, NAMES)))[:, :size]
        return Problems(names, targets, relations)


TASKS = (RCC8(),)


def draw_graph(
    key: PRNGKeyArray, *, length: int, size: int, spans: bool
) -> tuple[Int[Array, "N N"], Int[Array, "N N"]]:
    """Draws two chains of `length` relations from region 0 to region 1: relations and answers of pairs.

    Args:
        key: a JAX random key.
        length: k.
        size: N, at least 2 k.
        spans: whether parts of a chain of two relations and more are asked about, too, if they leave one
            relation open.
    """
    chains = _chains()
    for_answer, for_ends, *for_paths = jax.random.split(key, 4)
    ends = chains.ends(length)
    answer = jax.random.randint(for_answer, (), 0, len(ends))
    both = jax.random.categorical(for_ends, jnp.asarray(ends)[answer])
    count = len(chains.sets)
    relations = jnp.full((size, size), -1)
    targets = relations.at[0, 1].set(answer)
    for number, (end, path_key) in enumerate(zip((both // count, both % count), for_paths, strict=True)):
        path = _path(path_key, end, length)
        inner = [2 + number * (length - 1) + place for place in range(length - 1)]
        nodes = np.array([0, *inner, 1])
        relations = relations.at[nodes[:-1], nodes[1:]].set(path)
        if spans:
            for start in range(length - 1):
                at = path[start]
                for stop in range(start + 1, length):
                    at = jnp.asarray(chains.after)[at, path[stop]]
                    found = jnp.asarray(chains.sets)[at]
                    alone = jnp.where(jnp.sum(found) == 1, jnp.argmax(found), -1)
                    if stop - start + 1 < length:  # both ends of the whole chain have their answer
                        targets = targets.at[nodes[start], nodes[stop + 1]].set(alone)
    return relations, targets


def _path(key: PRNGKeyArray, end: Int[Array, ""], length: int) -> Int[Array, "K"]:
    """Draws the relations of a chain that composes to the set `end`, from its last relation back."""
    chains, path = _chains(), []
    relations = chains.after.shape[1]
    for left in range(length, 1, -1):
        step = jax.random.categorical(jax.random.fold_in(key, left), jnp.asarray(chains.steps(left))[end])
        end = step // relations
        path.append(step % relations)
    return jnp.stack([end, *path[::-1]])  # a set of one relation has its number
