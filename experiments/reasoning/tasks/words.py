"""Sequences: words of the symmetric group S5, and expressions modulo 5, longer than in training.

They are tasks of `llrnn.tasks`, at fixed lengths: Grazzi et al. (2024), Table 3 and Section 5.
"""

import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from experiments.reasoning.tasks.base import TRAIN, Kind, Problems, Task
from llrnn import tasks


@functools.cache
def _task(name: str) -> tasks.Task:
    return tasks.make(name)


class _Sequences(Task):
    """Sequences of a task of `llrnn.tasks` with one field."""

    kind: ClassVar[Kind] = "sequence"
    source: ClassVar[str]
    """The name of that task."""
    lengths: ClassVar[tuple[int, int]]
    """The shortest and the longest training length."""

    def draw(self, key: PRNGKeyArray, count: int, split: str = TRAIN) -> Problems:
        """See `Task.draw`; tests are named by their length."""
        task = _task(self.source)
        if split == TRAIN:
            for_length, key = jax.random.split(key)
            shortest, longest = self.lengths
            length = jax.random.randint(for_length, (), shortest, longest + 1)
            batch = task.sample(key, count, length, max_length=longest)
        else:
            batch = task.sample(key, count, int(split))
        return Problems(batch.tokens[..., 0], jnp.where(batch.mask, batch.targets, -1))


class Words(_Sequences):
    """The product so far, one of the 120 elements of S5, after every element of a word."""

    name: ClassVar[str] = "s5"
    source: ClassVar[str] = "word_problem"
    vocabulary: ClassVar[int] = _task("word_problem").fields[0]
    classes: ClassVar[int] = _task("word_problem").num_outputs
    lengths: ClassVar[tuple[int, int]] = (1, 16)
    size: ClassVar[int] = 16
    tests: ClassVar[tuple[str, ...]] = ("16", "32", "64")
    measure: ClassVar[str] = "32"


class ModularArithmetic(_Sequences):
    """The value modulo 5 of an expression of digits, +, - and *, after its last symbol."""

    name: ClassVar[str] = "modular_arithmetic"
    source: ClassVar[str] = "modular_arithmetic"
    vocabulary: ClassVar[int] = _task("modular_arithmetic").fields[0]
    classes: ClassVar[int] = _task("modular_arithmetic").num_outputs
    lengths: ClassVar[tuple[int, int]] = (3, 40)
    size: ClassVar[int] = 41
    tests: ClassVar[tuple[str, ...]] = ("39", "79", "159")
    measure: ClassVar[str] = "79"


TASKS = (Words(), ModularArithmetic())
