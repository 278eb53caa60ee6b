"""What a task of the suite is: problems drawn from a key, a split made beforehand, and tests by name.

Axis letters: B batch; N elements of a set, symbols of a sequence, or nodes of a graph.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Int, PRNGKeyArray

Kind = Literal["set", "sequence", "graph"]
TRAIN = "train"
"""The split that is trained on; every other split is a test."""
CANDIDATES = 128
"""How many problems are drawn for one that belongs to a split; see `of_split`."""


@struct.dataclass
class Problems:
    """Problems of one task, of equal shapes.

    Attributes:
        tokens: the elements by number; of a graph, the names or colours of its nodes.
        targets: the right class of every element or, in a graph, of every ordered pair of nodes; -1 where
            nothing is asked.
        relations: the relation of every ordered pair of nodes by number, -1 for none; None without a graph.
    """

    tokens: Int[Array, "B N"]
    targets: Int[Array, "B *N"]
    relations: Int[Array, "B N N"] | None = None


@dataclasses.dataclass(frozen=True)
class Task(abc.ABC):
    """A distribution of problems for each split; hashable, so that it may be static under `jax.jit`.

    Splits differ in what a user would call new: other compositions, or larger problems. Other compositions
    are held out before anything is permuted or renamed, by a rule that no permutation of a problem changes.
    Some tests are new draws as in training, for comparison; they are not the measure.

    Attributes of the class:
        name: its name in `tasks.TASKS`.
        kind: of its inputs. Models see sets without an order.
        vocabulary: number of tokens.
        classes: number of answers, C. A constant answer has an accuracy of 1 / C.
        relations: number of relations of a graph.
        size: number of elements of a training problem, or of pairs of nodes.
        tests: the splits that are tested.
        measure: the one of them whose accuracy is compared, and followed during training.
    """

    name: ClassVar[str]
    kind: ClassVar[Kind]
    vocabulary: ClassVar[int]
    classes: ClassVar[int]
    relations: ClassVar[int] = 0
    size: ClassVar[int]
    tests: ClassVar[tuple[str, ...]]
    measure: ClassVar[str]

    @abc.abstractmethod
    def draw(self, key: PRNGKeyArray, count: int, split: str = TRAIN) -> Problems:
        """Draws problems of a split.

        Args:
            key: a JAX random key.
            count: B.
            split: "train" or one of `tests`.
        """

    @property
    def asks_pairs(self) -> bool:
        """Whether answers are about ordered pairs of nodes, [B, N, N]."""
        return self.kind == "graph"


def of_split[Drawn](
    key: PRNGKeyArray,
    count: int,
    draw: Callable[[PRNGKeyArray], Drawn],
    belongs: Callable[[Drawn], Bool[Array, ""]],
) -> Drawn:
    """Draws `count` problems that belong to a split, each the first such one of `CANDIDATES`.

    If none of them belongs, the last is taken; a split must therefore hold a fair share of all problems.

    Args:
        key: a JAX random key.
        count: B.
        draw: draws one problem, any tree of arrays.
        belongs: whether it belongs to the split.
    """

    def one(key: PRNGKeyArray) -> Drawn:
        def again(carry: tuple[Array, Drawn]) -> tuple[Array, Drawn]:
            number, _ = carry
            return number + 1, draw(jax.random.fold_in(key, number + 1))

        def goes_on(carry: tuple[Array, Drawn]) -> Array:
            return ~belongs(carry[1]) & (carry[0] < CANDIDATES - 1)

        start = jnp.int32(0), draw(jax.random.fold_in(key, 0))
        return jax.lax.while_loop(goes_on, again, start)[1]

    return jax.vmap(one)(jax.random.split(key, count))
