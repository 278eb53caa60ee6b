"""Tasks whose state is an element of a group: the word problem, and powers of group elements.

The target at every step is the product so far. A step g acts as a function on the previous product: the
products are g1, g2 g1, g3 g2 g1, ..., where ab means first b and then a. The update is thus h -> g h, the
form of a recurrent cell with an operator for each g.
"""

import abc
import dataclasses
import functools
import itertools
import math
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
class ProgramTask(GroupTask):
    """Each step names numbers and operators, in one field each; the target is the product so far.

    A subclass says which element a step multiplies by. Some inputs of a step are held out of training, where
    every value of every field occurs with others. A network that reads the numbers as programs (numerals of
    linear logic) and applies them to operators generalises to the held-out inputs.

    split="train" draws every step from the trained inputs. split="held_out" draws every step from all inputs
    and scores only the steps whose input is held out; since the target is the product so far, a mistake there
    also counts at later held-out steps of the sequence. split="held_out_once" puts one held-out input into
    each sequence, at a uniform position, and scores only that step; the steps before it are as in training,
    which makes it the more direct of the two measures.

    Attributes:
      powers: the number of values of a number, which are 0, 1, ..., powers - 1.
      operators: the number of operators of each field that names one.
      held_out: the number of held-out inputs.
      seed: the seed that determines the operators and the held-out inputs.
    """

    powers: int
    operators: int
    held_out: int
    seed: int = 0

    def __post_init__(self):
        super().__post_init__()
        if self.powers < 2:
            raise ValueError(f"powers: got {self.powers}, expected at least 2")
        most = (self.elements.order - 1) // self._operator_fields
        if not 1 <= self.operators <= most:
            raise ValueError(f"operators: got {self.operators}, expected 1 to {most} for {self.group}")
        if self.held_out < 0:
            raise ValueError(f"held_out: got {self.held_out}, expected at least 0")
        _ = self.operator_elements, self.held_out_steps  # these raise if they cannot be chosen

    @property
    def splits(self) -> tuple[Split, ...]:
        """The training split and, if inputs are held out, the two splits that measure them."""
        return get_args(Split) if self.held_out else ("train",)

    @property
    def operator_elements(self) -> tuple[int, ...]:
        """The elements of the group that are the operators, by their numbers; field after field."""
        return choose_operators(self.group, self._operator_fields * self.operators, self.seed)

    @property
    def _operator_fields(self) -> int:
        """The number of fields that name an operator."""
        return 1

    @property
    @abc.abstractmethod
    def held_out_steps(self) -> tuple[tuple[int, ...], ...]:
        """The held-out inputs of a step, an integer per field; sorted."""

    @abc.abstractmethod
    def effects(self) -> Int[np.ndarray, "*F"]:
        """Returns the element by which each step multiplies, with an axis for each field."""

    @property
    @abc.abstractmethod
    def powers_of(self) -> tuple[Int[np.ndarray, "_"], ...]:
        """The elements whose powers a step takes, an array for each field that is a number."""

    def _sample(
        self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int, split: Split
    ) -> Batch:
        held_out = np.zeros(self.fields, bool)
        for step in self.held_out_steps:
            held_out[step] = True
        trained, unseen = np.flatnonzero(~held_out), np.flatnonzero(held_out)
        drawn = np.arange(held_out.size) if split == "held_out" else trained
        key, place_key, step_key = jax.random.split(key, 3)
        shape = (batch_size, max_length)
        step = jnp.asarray(drawn, jnp.int32)[jax.random.randint(key, shape, 0, len(drawn))]
        mask = jnp.broadcast_to((jnp.arange(max_length) < length)[None], shape)
        if split == "held_out":
            mask &= jnp.asarray(held_out.ravel())[step]
        elif split == "held_out_once":
            place = jax.random.randint(place_key, (batch_size, 1), 0, length)
            new = jax.random.randint(step_key, (batch_size, 1), 0, len(unseen))
            mask = jnp.arange(max_length)[None] == place
            step = jnp.where(mask, jnp.asarray(unseen, jnp.int32)[new], step)
        tokens = jnp.stack(jnp.unravel_index(step, self.fields), axis=-1)
        return Batch(tokens, self.running_product(jnp.asarray(self.effects().ravel())[step]), mask)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupPowers(ProgramTask):
    """A step (k, g) means "apply g, k times"; `ProgramTask` documents the splits and the attributes."""

    powers: int = 8
    operators: int = 4
    held_out: int = 8

    @property
    def fields(self) -> tuple[int, ...]:
        """Two fields, the power k and the operator g."""
        return (self.powers, self.operators)

    @property
    def held_out_pairs(self) -> tuple[Pair, ...]:
        """The held-out pairs (k, g), sorted."""
        return choose_held_out(self.powers, self.operators, self.held_out, self.seed)

    @property
    def held_out_steps(self) -> tuple[Pair, ...]:
        """The held-out pairs."""
        return self.held_out_pairs

    @property
    def powers_of(self) -> tuple[Int[np.ndarray, "_"], ...]:
        """The operators g."""
        return (np.asarray(self.operator_elements),)

    def effects(self) -> Int[np.ndarray, "{self.powers} {self.operators}"]:
        """Returns g^k for each pair."""
        power = self.elements.power
        return np.array([[power(g, k) for g in self.operator_elements] for k in range(self.powers)], np.int32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NestedPowers(ProgramTask):
    """A step (m, n, a, b) means "n times: apply a, m times, then b", the program (b a^m)^n.

    `ProgramTask` documents the splits and the attributes. Held-out steps are drawn at random from those with
    m and n of at least 1, such that the values of any two fields occur together in a trained step.
    """

    powers: int = 4
    operators: int = 8
    held_out: int = 256

    @property
    def fields(self) -> tuple[int, ...]:
        """Four fields, the numbers m and n and the operators a and b."""
        return (self.powers, self.powers, self.operators, self.operators)

    @property
    def _operator_fields(self) -> int:
        return 2

    @property
    def held_out_steps(self) -> tuple[tuple[int, ...], ...]:
        """The held-out steps (m, n, a, b), sorted."""
        return choose_held_out_steps(self.fields, (1, 1, 0, 0), self.held_out, self.seed)

    @property
    def powers_of(self) -> tuple[Int[np.ndarray, "_"], ...]:
        """The operators a, and the rounds b a^m."""
        return np.asarray(self.operator_elements[: self.operators]), self._rounds().ravel()

    def _rounds(self) -> Int[np.ndarray, "{self.powers} {self.operators} {self.operators}"]:
        """Returns b a^m for each m, a and b."""
        power, table = self.elements.power, self.elements.table
        of_a = self.operator_elements[: self.operators]
        of_b = self.operator_elements[self.operators :]
        return np.array([[[table[b, power(a, m)] for b in of_b] for a in of_a] for m in range(self.powers)])

    def effects(self) -> Int[np.ndarray, "{self.powers} {self.powers} {self.operators} {self.operators}"]:
        """Returns (b a^m)^n for each step."""
        power, table = self.elements.power, self.elements.table
        powers = np.array([[power(g, n) for g in range(len(table))] for n in range(self.powers)], np.int32)
        return np.moveaxis(powers[:, self._rounds()], 0, 1)


@functools.cache
def choose_operators(name: str, count: int, seed: int) -> tuple[int, ...]:
    """Draws `count` elements that together generate the group.

    They are drawn from the elements of order 3 or more, since an element of order 2 has only two distinct
    powers; from all if there are too few, or if they do not generate the group, as rotations do not.

    Raises:
      ValueError: 1000 draws from all elements found no `count` that generate the group.
    """
    rng = np.random.default_rng(seed)
    for candidates in (np.flatnonzero(group(name).element_orders() > 2), np.arange(1, group(name).order)):
        for _ in range(1000 if count <= len(candidates) else 0):
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


@functools.cache
def choose_held_out_steps(
    fields: tuple[int, ...], least: tuple[int, ...], count: int, seed: int, tries: int = 100
) -> tuple[tuple[int, ...], ...]:
    """Draws steps to hold out such that the values of any two fields occur together in another step.

    Args:
      fields: the number of values of each field.
      least: the least value of each field in a step that is held out.
      count: the number of steps.
      seed: determines the draw.
      tries: how many draws are made until one leaves all these pairs.

    Raises:
      ValueError: none of the draws does, or there are fewer than `count` such steps.
    """
    rng = np.random.default_rng(seed)
    pairs = list(itertools.combinations(range(len(fields)), 2))
    candidates = np.flatnonzero(np.all(np.moveaxis(np.indices(fields), 0, -1) >= least, axis=-1))
    for _ in range(tries if count <= len(candidates) else 0):
        trained = np.ones(math.prod(fields), bool)
        chosen = rng.permutation(candidates)[:count]
        trained[chosen] = False
        others = (tuple(sorted(set(range(len(fields))) - set(pair))) for pair in pairs)
        if all(trained.reshape(fields).any(axis=axes).all() for axes in others):
            found = np.stack(np.unravel_index(np.sort(chosen), fields), axis=-1)
            return tuple(tuple(map(int, step)) for step in found)
    raise ValueError(
        f"held_out: got {count}, expected at most {len(candidates)}, and few enough that the values of any "
        "two fields occur together in another step"
    )


_LENGTHS = {"train_lengths": (1, 16), "test_lengths": (32, 64, 128, 256)}

TASKS: tuple[Task, ...] = (
    WordProblem(name="word_problem", **_LENGTHS),
    GroupPowers(name="group_powers", train_lengths=(1, 8), test_lengths=(8, 16, 32)),
    NestedPowers(name="nested_powers", train_lengths=(1, 8), test_lengths=(8, 16, 32)),
)
