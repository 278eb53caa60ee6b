"""Tasks whose state is an element of a group: the word problem, and powers of group elements.

The target at every step is the product so far. A step g acts as a function on the previous product: the
products are g1, g2 g1, g3 g2 g1, ..., where ab means first b and then a. The update is thus h -> g h, the
form of a recurrent cell with an operator for each g.
"""

import dataclasses
import functools
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from llrnn.tasks.base import Batch, Length, Split, Task
from llrnn.tasks.permutations import Group, group

type Pair = tuple[int, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupTask(Task):
    """A task whose target at every step is the product so far, an element of the group.

    Attributes:
      group: S, A, Z or D and a number, an argument of `permutations.group`.
    """

    group: str = "S5"

    def __post_init__(self):
        super().__post_init__()
        group(self.group)  # raises for a wrong name here, not in the middle of a run

    @property
    def num_outputs(self) -> int:
        """The order of the group."""
        return self.elements.order

    @property
    def elements(self) -> Group:
        """The elements of the group as permutations, with their multiplication table."""
        return group(self.group)

    def steps(self, length: int) -> int:
        """Returns the length: one step per element."""
        return length

    def running_product(self, factors: Int[Array, "B T"]) -> Int[Array, "B T"]:
        """Computes the products of the first 1, 2, ..., T elements, with later elements on the left."""
        table = jnp.asarray(self.elements.table)
        return jax.lax.associative_scan(lambda before, after: table[after, before], factors, axis=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordProblem(GroupTask):
    """The word problem: tokens are uniform over the elements of the group, the target is the product so far.

    For S5, and for every group that is not solvable, the problem is complete for NC1 (Barrington 1989).
    """

    @property
    def fields(self) -> tuple[int, ...]:
        """One field, the element of the group."""
        return (self.elements.order,)

    def _sample(
        self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int, split: Split
    ) -> Batch:
        factors = jax.random.randint(key, (batch_size, max_length), 0, self.elements.order, dtype=jnp.int32)
        mask = jnp.broadcast_to((jnp.arange(max_length) < length)[None], factors.shape)
        return Batch(factors[..., None], self.running_product(factors), mask)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupPowers(GroupTask):
    """Each step is a pair (k, g) in two fields, "apply g, k times"; the target is the product so far.

    Some pairs are held out of training, where every k and every g occurs in other pairs. A network that reads
    k as a program (the numeral k of linear logic) and g as its operator generalises to the held-out pairs.

    split="train" draws every step from the trained pairs. split="held_out" draws every step from all pairs
    and scores only the steps whose pair is held out; since the target is the product so far, a mistake there
    also counts at later held-out steps of the sequence. split="held_out_once" puts one held-out pair into
    each sequence, at a uniform position, and scores only that step; the steps before it are as in training,
    which makes it the more direct of the two measures.

    Attributes:
      powers: the number of values of k, which are 0, 1, ..., powers - 1.
      operators: the number of operators g.
      held_out: the number of held-out pairs among the powers * operators.
      seed: the seed that determines the operators and the held-out pairs.
    """

    powers: int = 8
    operators: int = 4
    held_out: int = 8
    seed: int = 0

    def __post_init__(self):
        super().__post_init__()
        if self.powers < 2:
            raise ValueError(f"powers: got {self.powers}, expected at least 2")
        if not 1 <= self.operators < self.elements.order:
            raise ValueError(
                f"operators: got {self.operators}, expected 1 to {self.elements.order - 1} for {self.group}"
            )
        if self.held_out < 0:
            raise ValueError(f"held_out: got {self.held_out}, expected at least 0")
        _ = self.operator_elements, self.held_out_pairs  # these raise if they cannot be chosen

    @property
    def fields(self) -> tuple[int, ...]:
        """Two fields, the power k and the operator g."""
        return (self.powers, self.operators)

    @property
    def splits(self) -> tuple[Split, ...]:
        """The training split and, if pairs are held out, the two splits that measure them."""
        return get_args(Split) if self.held_out else ("train",)

    @property
    def operator_elements(self) -> tuple[int, ...]:
        """The elements of the group that are the operators g, by their numbers."""
        return choose_operators(self.group, self.operators, self.seed)

    @property
    def held_out_pairs(self) -> tuple[Pair, ...]:
        """The held-out pairs (k, g), sorted."""
        return choose_held_out(self.powers, self.operators, self.held_out, self.seed)

    def effects(self) -> Int[np.ndarray, "{self.powers} {self.operators}"]:
        """Returns the element g^k by which each pair multiplies."""
        power = self.elements.power
        return np.array([[power(g, k) for g in self.operator_elements] for k in range(self.powers)], np.int32)

    def _sample(
        self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int, split: Split
    ) -> Batch:
        held_out = np.zeros(self.fields, bool)
        for pair in self.held_out_pairs:
            held_out[pair] = True
        trained, unseen = np.flatnonzero(~held_out), np.flatnonzero(held_out)
        drawn = np.arange(held_out.size) if split == "held_out" else trained
        key, place_key, pair_key = jax.random.split(key, 3)
        shape = (batch_size, max_length)
        pair = jnp.asarray(drawn, jnp.int32)[jax.random.randint(key, shape, 0, len(drawn))]
        mask = jnp.broadcast_to((jnp.arange(max_length) < length)[None], shape)
        if split == "held_out":
            mask &= jnp.asarray(held_out.ravel())[pair]
        elif split == "held_out_once":
            place = jax.random.randint(place_key, (batch_size, 1), 0, length)
            new = jax.random.randint(pair_key, (batch_size, 1), 0, len(unseen))
            mask = jnp.arange(max_length)[None] == place
            pair = jnp.where(mask, jnp.asarray(unseen, jnp.int32)[new], pair)
        tokens = jnp.stack([pair // self.operators, pair % self.operators], axis=-1)
        return Batch(tokens, self.running_product(jnp.asarray(self.effects().ravel())[pair]), mask)


@functools.cache
def choose_operators(name: str, count: int, seed: int) -> tuple[int, ...]:
    """Draws `count` elements that together generate the group.

    They are drawn from the elements of order 3 or more if there are enough, since an element of order 2 has
    only two distinct powers.

    Raises:
      ValueError: 1000 draws found no `count` elements that generate the group.
    """
    candidates = np.flatnonzero(group(name).element_orders() > 2)
    if len(candidates) < count:
        candidates = np.arange(1, group(name).order)
    rng = np.random.default_rng(seed)
    for _ in range(1000):
        chosen = tuple(int(g) for g in rng.choice(candidates, count, replace=False))
        if len(group(name).generated(chosen)) == group(name).order:
            return chosen
    raise ValueError(f"operators: got {count}, expected enough to generate {name}")


@functools.cache
def choose_held_out(powers: int, operators: int, count: int, seed: int) -> tuple[Pair, ...]:
    """Draws pairs (k, g) to hold out, spread evenly over k and g.

    Every k and every g stays in at least two trained pairs, and (1, g) is always trained.

    Raises:
      ValueError: `count` pairs cannot be held out under these conditions.
    """
    rng = np.random.default_rng(seed)
    candidates = [(k, g) for k in range(powers) if k != 1 for g in range(operators)]
    candidates = [candidates[i] for i in rng.permutation(len(candidates))]
    left_k, left_g = np.full(powers, operators), np.full(operators, powers)
    chosen: list[Pair] = []
    while len(chosen) < count:
        # Choose the pair whose g, and then whose k, has the most trained pairs left; ties take the first.
        free = [(k, g) for k, g in candidates if left_k[k] > 2 and left_g[g] > 2 and (k, g) not in chosen]
        if not free:
            raise ValueError(
                f"held_out: got {count}, expected at most {len(chosen)}, so that each of {powers} powers and "
                f"{operators} operators stays in two trained pairs"
            )
        k, g = max(free, key=lambda pair: (left_g[pair[1]], left_k[pair[0]]))
        chosen.append((k, g))
        left_k[k] -= 1
        left_g[g] -= 1
    return tuple(sorted(chosen))


_LENGTHS = {"train_lengths": (1, 16), "test_lengths": (32, 64, 128, 256)}

TASKS: tuple[Task, ...] = (
    WordProblem(name="word_problem", **_LENGTHS),
    GroupPowers(name="group_powers", train_lengths=(1, 8), test_lengths=(8, 16, 32)),
)
