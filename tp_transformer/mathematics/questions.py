"""Questions and answers drawn from the generator, as a function of a seed and nothing else."""

import abc
import contextlib
import functools
import hashlib
import operator
import random
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
from jaxtyping import UInt8

from tp_transformer.mathematics.modules import (
    EXTRAPOLATE,
    INTERPOLATE,
    LEVELS,
    SPLITS,
    check_modules,
    unknown,
)
from tp_transformer.mathematics.repairs import import_generator
from tp_transformer.mathematics.vocabulary import CHARACTERS, MAX_ANSWER, MAX_QUESTION

MAX_REFUSED = 1000
"""Draws in a row that may turn out to be excluded before the module is said to have no other questions."""


class Question(NamedTuple):
    """A question and its answer, as text."""

    question: str
    answer: str


class Questions(abc.ABC):
    """The questions of one module in one split, read at random."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Number of questions, N."""

    @abc.abstractmethod
    def _at(self, index: int) -> Question:
        """The question at an index from 0 to N - 1."""

    @abc.abstractmethod
    def lengths(self) -> UInt8[np.ndarray, "N 2"]:
        """Characters of every question and answer."""

    def __getitem__(self, index: SupportsIndex) -> Question:
        """One question and its answer; counted from the end if the index is negative.

        Raises:
            IndexError: there are not that many.
        """
        place = operator.index(index)
        place += len(self) * (place < 0)
        if not 0 <= place < len(self):
            raise IndexError(f"there are {len(self)} questions, none at {index}")
        return self._at(place)

    def take(self, indices: Iterable[int]) -> list[Question]:
        """Questions at some indices, each from 0 to N - 1; faster than one by one where that is possible."""
        return [self._at(index) for index in indices]

    def __iter__(self) -> Iterator[Question]:
        """All questions in order."""
        return map(self._at, range(len(self)))


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Callable[[], Any]]:
    """The generator's nested dictionaries with names joined by two underscores, as v1.0's files are
    called.
    """
    flat = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{name}__")
        else:
            flat[prefix + name] = value
    return flat


def _third(level: int) -> Callable[[tuple[float, float]], tuple[float, float]]:
    """Narrows a range of entropy to its first, second or last third: easy, medium, hard (Saxton et al.
    2019).
    """

    def narrow(entropy: tuple[float, float]) -> tuple[float, float]:
        low, width = entropy[0], entropy[1] - entropy[0]
        return low + level / 3 * width, low + (level + 1) / 3 * width

    return narrow


@functools.cache
def _samplers(split: str) -> dict[str, Callable[[], Any]]:
    """The generator's function for each module of a split."""
    generator = import_generator()
    if split == INTERPOLATE:
        return _flatten(generator.test())
    if split == EXTRAPOLATE:
        return _flatten(generator.test_extra())
    return _flatten(generator.train(_third(LEVELS.index(split))))


_lock = threading.Lock()


@contextlib.contextmanager
def _seeded(key: str) -> Iterator[None]:
    """The global generators that the package and SymPy draw from, seeded by a key; as they were
    afterwards.
    """
    import sympy.core.random as sympy_random

    digest = hashlib.sha256(key.encode()).digest()
    with _lock:
        before = random.getstate(), np.random.get_state(), sympy_random.rng.getstate()  # noqa: NPY002
        random.seed(digest)
        np.random.seed(np.frombuffer(digest, np.uint32))  # noqa: NPY002 -- the package uses no other
        sympy_random.seed(int.from_bytes(digest[:8], "big"))
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002
            sympy_random.rng.setstate(before[2])


def fingerprint(question: str) -> int:
    """64 bits that stand for a question; among a million, two share theirs with a probability of 3e-8."""
    return int.from_bytes(hashlib.blake2b(question.encode(), digest_size=8).digest(), "big")


def draw(
    split: str, module: str, count: int, *, seed: int, part: int = 0, exclude: Container[int] = frozenset()
) -> list[Question]:
    """Draws questions.

    The same arguments give the same questions in any process. `count` only says where to stop: a longer draw
    begins with the shorter one. Another `part` gives other questions, so that parts can be drawn
    independently.

    Args:
        split: one of the five of `SPLITS`.
        module: a module of the split.
        count: how many.
        seed: of the whole set.
        part: which part of the set.
        exclude: fingerprints of questions that must not be drawn.

    Returns:
        The questions, all within the vocabulary and at most 160 and 30 characters long. As in the original
        dataset, one may occur twice.

    Raises:
        ValueError: no such split or module, a negative number, or (nearly) every question of the module is
            excluded.
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    (module,) = check_modules(split, [module])
    for name, value in (("count", count), ("seed", seed), ("part", part)):
        if value < 0:
            raise ValueError(f"{name} must not be negative, got {value}")
    sample = _samplers(split)[module]
    characters = frozenset(CHARACTERS)
    drawn: list[Question] = []
    refused = 0
    with _seeded(f"{seed}/{split}/{module}/{part}"):
        while len(drawn) < count:
            problem = sample()
            question, answer = str(problem.question), str(problem.answer)
            if len(question) > MAX_QUESTION or len(answer) > MAX_ANSWER:
                continue  # as the original does
            if not characters.issuperset(question) or not characters.issuperset(answer):
                raise RuntimeError(f"{split}/{module}: {question!r}, {answer!r} is outside the vocabulary")
            if fingerprint(question) in exclude:
                refused += 1
                if refused >= MAX_REFUSED:
                    raise ValueError(
                        f"exclude leaves {module} of {split} no questions: {refused} in a row were in it"
                    )
                continue
            refused = 0
            drawn.append(Question(question, answer))
    return drawn
