"""Compares a task of Deletang et al. with its definition in plain Python."""

import dataclasses
from collections.abc import Callable

import numpy as np

from llrnn import tasks


@dataclasses.dataclass(frozen=True)
class Definition:
    """What a task should be.

    Attributes:
        symbols: of its strings.
        classes: of its answers.
        answer: the answer to a string.
        longest: the length of the longest answer to strings of a length.
        shortest: the least length.
    """

    symbols: int
    classes: int
    answer: Callable[[list[int]], list[int]]
    longest: Callable[[int], int] = lambda n: 1
    shortest: int = 1


def assert_defined(draw, name: str, definition: Definition, room: int = 20) -> None:
    """Checks strings, answers of unequal lengths, what is scored, and what stands where nothing is."""
    task = tasks.make(name)
    assert isinstance(task, tasks.StringTask)
    assert (task.fields, task.num_outputs) == ((definition.symbols + 1,), definition.classes)
    assert (task.min_length, task.train_lengths) == (definition.shortest, (definition.shortest, 40))
    assert task.test_lengths == tuple(range(41, 501))
    assert task.steps(20) == 20 + definition.longest(20)
    for length in (definition.shortest, definition.shortest + 1, 7, 12, room):
        batch = draw(task, length, batch_size=32, max_length=room, seed=length)
        assert batch.tokens.shape == (32, task.steps(room), 1)
        start = task.string_length(length)
        assert start == (length - (length % 2 == 0) if name == "modular_arithmetic" else length)
        for tokens, targets, mask in zip(
            batch.tokens[..., 0].tolist(), batch.targets.tolist(), batch.mask, strict=True
        ):
            out = definition.answer(tokens[:start])
            assert set(tokens[:start]) <= set(range(definition.symbols))
            assert tokens[start:] == [definition.symbols] * (len(tokens) - start)
            assert targets[start : start + len(out)] == out
            assert np.flatnonzero(mask).tolist() == list(range(start, start + len(out)))
            assert set(targets) <= set(range(definition.classes))
