"""Composition of binary relations, and its quotient by colours: Kozachinskiy et al. (2025), Sections 4 and 5.

Asked of every pair (i, j) of nodes is whether a node k follows i and precedes j; in the quotient, whether
two different nodes of one colour follow i and j. Edges are independent, and so likely that half of all
answers in graphs of 6 nodes are yes (the paper has .325 and .433, for 6 to 8 nodes). The paper's test graphs
are drawn as those of training; here graphs whose number of edges is a multiple of `EVERY` are for the test,
which no renaming changes.

Axis letters: B batch; N nodes.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from experiments.reasoning.tasks.base import TRAIN, Kind, Problems, Task, of_split

SIZES = {TRAIN: 6, "graphs": 6, "graphs_of_8": 8}
NAMES = 16
EDGES = 0.325
"""How likely an edge is: a path of two edges leads from one node to another about as often as not."""
EVERY = 5


class _Graphs(Task):
    """Graphs with one relation, and two answers per pair."""

    kind: ClassVar[Kind] = "graph"
    classes: ClassVar[int] = 2
    relations: ClassVar[int] = 1
    size: ClassVar[int] = SIZES[TRAIN] ** 2
    tests: ClassVar[tuple[str, ...]] = ("graphs", "graphs_of_8")
    measure: ClassVar[str] = "graphs"

    def _edges(
        self, key: PRNGKeyArray, count: int, split: str, probability: float, *, loops: bool
    ) -> Bool[Array, "B N N"]:
        size = SIZES[split]

        def draw(key):
            edges = jax.random.bernoulli(key, probability, (size, size))
            return edges if loops else edges & ~jnp.eye(size, dtype=bool)

        return of_split(key, count, draw, lambda edges: (jnp.sum(edges) % EVERY == 0) == (split != TRAIN))


class Composition(_Graphs):
    """Is there a k with edges (i, k) and (k, j)? Nodes have names, drawn for each graph."""

    name: ClassVar[str] = "composition"
    vocabulary: ClassVar[int] = NAMES

    def draw(self, key: PRNGKeyArray, count: int, split: str = TRAIN) -> Problems:
        """See `Task.draw`."""
        for_edges, for_names = jax.random.split(key)
        edges = self._edges(for_edges, count, split, EDGES, loops=True)
        names = jnp.argsort(jax.random.uniform(for_names, (count, NAMES)))[:, : edges.shape[1]]
        return Problems(names, joined(edges, edges).astype(jnp.int32), jnp.where(edges, 0, -1))


class Quotient(_Graphs):
    """Are there different nodes k and l of one colour with edges (i, k) and (j, l)? Asked where i is not j.

    Nodes have no names; their tokens are colours, as many as graphs of training have nodes.
    """

    name: ClassVar[str] = "quotient"
    vocabulary: ClassVar[int] = SIZES[TRAIN]

    def draw(self, key: PRNGKeyArray, count: int, split: str = TRAIN) -> Problems:
        """See `Task.draw`."""
        for_edges, for_colours = jax.random.split(key)
        edges = self._edges(for_edges, count, split, 0.47, loops=False)
        colours = jax.random.randint(for_colours, edges.shape[:2], 0, self.vocabulary)
        same = jnp.eye(edges.shape[1], dtype=bool)[None]
        alike = (colours[:, :, None] == colours[:, None]) & ~same
        answers = joined(joined(edges, alike), jnp.swapaxes(edges, 1, 2))
        return Problems(colours, jnp.where(same, -1, answers.astype(jnp.int32)), jnp.where(edges, 0, -1))


TASKS = (Composition(), Quotient())


def joined(first: Bool[Array, "B N N"], second: Bool[Array, "B N N"]) -> Bool[Array, "B N N"]:
    """Returns at [:, i, j] whether a k has first[:, i, k] and second[:, k, j]."""
    return jnp.einsum("bik,bkj->bij", first.astype(jnp.float32), second.astype(jnp.float32)) > 0
