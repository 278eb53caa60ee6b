"""Tasks whose state is an element of a group: the word problem, and applying powers of group elements.

After every step the network names the product so far. A step g acts as a function on what came before it: the
products are g1, g2 g1, g3 g2 g1, ..., where ab means b first and then a. So the update is h -> g h, the form
that a recurrent cell with an operator for each g has.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from llrnn.tasks.base import Batch, Length, Task
from llrnn.tasks.permutations import Group, group

type Pair = tuple[int, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupTask(Task):
    """A task with a target at every step: the product so far, a class among the elements of the group.

    Attributes:
      group: S, A, Z or D and a number, as `permutations.group` takes it.
    """

    group: str = "S5"

    def __post_init__(self):
        super().__post_init__()
        group(self.group)  # refuses a wrong name here, not in the middle of a run

    @property
    def num_outputs(self) -> int:
        """The order of the group."""
        return self.elements.order

    @property
    def elements(self) -> Group:
        """The group itself."""
        return group(self.group)

    def steps(self, length: int) -> int:
        """One step an element."""
        return length

    def running_product(self, factors: Int[Array, "B T"]) -> Int[Array, "B T"]:
        """The products of the first 1, 2, ..., T elements, later ones on the left."""
        table = jnp.asarray(self.elements.table)
        return jax.lax.associative_scan(lambda before, after: table[after, before], factors, axis=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordProblem(GroupTask):
    """Tokens are uniform over all elements of the group; name the product so far.

    For S5, and every group that is not solvable, the problem is complete for NC1 (Barrington 1989).
    """

    @property
    def fields(self) -> tuple[int, ...]:
        """One field: the element."""
        return (self.elements.order,)

    def _sample(self, key: Array, batch_size: int, length: Length, max_length: int, split: str) -> Batch:
        factors = jax.random.randint(key, (batch_size, max_length), 0, self.elements.order, dtype=jnp.int32)
        mask = jnp.broadcast_to((jnp.arange(max_length) < length)[None], factors.shape)
        return Batch(factors[..., None], self.running_product(factors), mask)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupPowers(GroupTask):
    """Each step is a pair (k, g) in two fields, "apply g, k times"; name the product so far.

    Some pairs are held out, though every k and every g is trained with others: a network that reads k as a
    program (the numeral k of linear logic) and g as its operator knows them all the same.

    split="train" draws every step from the trained pairs. split="held_out" draws every step from all pairs
    and scores the steps whose pair is held out, and no others; since the target is the product so far, a
    mistake there also shows at later held-out steps of the same sequence. split="held_out_once" has one
    held-out pair in a sequence, at a place drawn uniformly, and scores that step alone: what comes before it
    is as in training, so it asks the plainest question of the two.

    Attributes:
      powers: how many k: 0, 1, ..., powers - 1.
      operators: how many g.
      held_out: how many of the powers * operators pairs are held out.
      seed: decides which elements are the operators, and which pairs are held out.
    """

    powers: int = 8
    operators: int = 4
    held_out: int = 8
    seed: int = 0

    def __post_init__(self):
        super().__post_init__()
        if self.powers < 2:
            raise ValueError(f"powers must be at least 2, got {self.powers}")
        if not 1 <= self.operators < self.elements.order:
            raise ValueError(
                f"operators must be from 1 to {self.elements.order - 1} for {self.group}, "
                f"got {self.operators}"
            )
        if self.held_out < 0:
            raise ValueError(f"held_out must be at least 0, got {self.held_out}")
        _ = self.operator_elements, self.held_out_pairs  # raise here where there are not enough

    @property
    def fields(self) -> tuple[int, ...]:
        """The power, then the operator."""
        return (self.powers, self.operators)

    @property
    def splits(self) -> tuple[str, ...]:
        """Trained pairs alone, and the two ways to ask for held-out ones if there are any."""
        return ("train", "held_out", "held_out_once") if self.held_out else ("train",)

    @property
    def operator_elements(self) -> tuple[int, ...]:
        """Which element of the group each g is."""
        return choose_operators(self.group, self.operators, self.seed)

    @property
    def held_out_pairs(self) -> tuple[Pair, ...]:
        """The held-out pairs (k, g), sorted."""
        return choose_held_out(self.powers, self.operators, self.held_out, self.seed)

    def effects(self) -> np.ndarray:
        """[powers, operators], the element that each pair multiplies by."""
        power = self.elements.power
        return np.array([[power(g, k) for g in self.operator_elements] for k in range(self.powers)], np.int32)

    def _sample(self, key: Array, batch_size: int, length: Length, max_length: int, split: str) -> Batch:
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
    """Elements that together generate a group, drawn by a seed.

    They are drawn among the elements of order 3 and more where there are enough, since the powers of an
    element of order 2 are only two.

    Raises:
      ValueError: no `count` elements that generate the group were found.
    """
    candidates = np.flatnonzero(group(name).element_orders() > 2)
    if len(candidates) < count:
        candidates = np.arange(1, group(name).order)
    rng = np.random.default_rng(seed)
    for _ in range(1000):
        chosen = tuple(int(g) for g in rng.choice(candidates, count, replace=False))
        if len(group(name).generated(chosen)) == group(name).order:
            return chosen
    raise ValueError(f"operators must be enough to generate {name}, got {count}")


@functools.cache
def choose_held_out(powers: int, operators: int, count: int, seed: int) -> tuple[Pair, ...]:
    """Pairs (k, g) to hold out, drawn by a seed and spread evenly over k and g.

    Every k and every g stays in at least two trained pairs, and (1, g) is always trained.

    Raises:
      ValueError: `count` is more than that leaves.
    """
    rng = np.random.default_rng(seed)
    candidates = [(k, g) for k in range(powers) if k != 1 for g in range(operators)]
    candidates = [candidates[i] for i in rng.permutation(len(candidates))]
    left_k, left_g = np.full(powers, operators), np.full(operators, powers)
    chosen: list[Pair] = []
    while len(chosen) < count:
        # The pair whose g, and then whose k, has most trained pairs left; among equals the first.
        free = [(k, g) for k, g in candidates if left_k[k] > 2 and left_g[g] > 2 and (k, g) not in chosen]
        if not free:
            raise ValueError(
                f"held_out must be at most {len(chosen)} for each of {powers} powers and {operators} "
                f"operators to be trained twice, got {count}"
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
