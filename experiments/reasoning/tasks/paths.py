"""Lengths of shortest paths in random directed graphs: 1, 2, 3, 4, or more (which includes no path).

Every node has two successors, and a name, drawn for each graph, that tells it from the others. All names
occur in training; tests have more nodes.

Axis letters: B batch; N nodes.
"""

import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from experiments.reasoning.tasks.base import TRAIN, Kind, Problems, Task

SUCCESSORS = 2
CLASSES = 5
NAMES = 48
"""The number of names of nodes, and so the most nodes of a graph."""
SIZES = {TRAIN: 8, "graphs_of_8": 8, "graphs_of_12": 12}


class Paths(Task):
    """One relation; five answers per pair of different nodes."""

    name: ClassVar[str] = "paths"
    kind: ClassVar[Kind] = "graph"
    vocabulary: ClassVar[int] = NAMES
    classes: ClassVar[int] = CLASSES
    relations: ClassVar[int] = 1
    size: ClassVar[int] = SIZES[TRAIN] ** 2
    tests: ClassVar[tuple[str, ...]] = ("graphs_of_8", "graphs_of_12")
    measure: ClassVar[str] = "graphs_of_12"

    def draw(self, key: PRNGKeyArray, count: int, split: str = TRAIN) -> Problems:
        """See `Task.draw`."""
        names, edges, answers = draw(key, count, SIZES[split])
        return Problems(names, answers, jnp.where(edges, 0, -1))


TASKS = (Paths(),)


@functools.partial(jax.jit, static_argnums=(1, 2))
def draw(
    key: PRNGKeyArray, count: int, nodes: int
) -> tuple[Int[Array, "B N"], Bool[Array, "B N N"], Int[Array, "B N N"]]:
    """Draws graphs: names of nodes, edges, and answers: classes, -1 from a node to itself."""
    of_edges, of_names = jax.random.split(key)
    scores = jax.random.uniform(of_edges, (count, nodes, nodes)) - jnp.eye(nodes)[None]
    edges = jax.nn.one_hot(jax.lax.top_k(scores, SUCCESSORS)[1], nodes).sum(axis=2) > 0
    names = jnp.argsort(jax.random.uniform(of_names, (count, NAMES)))[:, :nodes]
    reached = jnp.broadcast_to(jnp.eye(nodes, dtype=bool)[None], edges.shape)
    longer = jnp.zeros(edges.shape, jnp.int32)
    for _ in range(CLASSES):
        longer += ~reached  # nodes that are not reached yet are at least one edge further
        reached |= jnp.einsum("bxa,bay->bxy", edges.astype(jnp.float32), reached.astype(jnp.float32)) > 0
    return names, edges, longer - 1
