"""Questions and answers drawn from the generator, as a function of a seed and nothing else."""

import abc
import contextlib
import functools
import hashlib
import itertools
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

_AT_ONCE = 4096  # questions taken at once when all are read


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
        return itertools.chain.from_iterable(map(self.take, itertools.batched(range(len(self)), _AT_ONCE)))

    def lengths(self) -> UInt8[np.ndarray, "N 2"]:
        """Characters of every question and answer."""
        pairs = ((len(question), len(answer)) for question, answer in self)
        return np.fromiter(pairs, np.dtype((np.uint8, 2)), len(self))


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Callable[[], Any]]:
    """The generator's nested dictionaries with names joined by two underscores, as v1.0's files have them."""
    flat = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{name}__")
        else:
            flat[prefix + name] = value
    return flat


def _third(level: int, entropy: tuple[float, float]) -> tuple[float, float]:
    """The first, second or last third of a range of entropy: easy, medium, hard (Saxton et al. 2019)."""
    low, width = entropy[0], entropy[1] - entropy[0]
    return low + level / 3 * width, low + (level + 1) / 3 * width


@functools.cache
def _samplers(split: str) -> dict[str, Callable[[], Any]]:
    """The generator's function for each module of a split."""
    generator = import_generator()
    if split == INTERPOLATE:
        return _flatten(generator.test())
    if split == EXTRAPOLATE:
        return _flatten(generator.test_extra())
    return _flatten(generator.train(functools.partial(_third, LEVELS.index(split))))


_lock = threading.Lock()


@contextlib.contextmanager
def _seeded(key: str) -> Iterator[None]:
    """Seeds the global generators that the package and SymPy draw from; restores them afterwards."""
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
    """Draws questions within the vocabulary, of at most 160 and 30 characters; one may occur twice.

    The same arguments give the same questions in any process. `count` only says where to stop: a longer draw
    begins with the shorter one. Another `part` of the set gives other questions, so that parts can be drawn
    independently. `exclude` has fingerprints of questions that must not be drawn.

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
