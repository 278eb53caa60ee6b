"""Questions and answers drawn from the generator, as a function of a seed only."""

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
    FileSplit,
    check_modules,
    unknown,
)
from tp_transformer.mathematics.repairs import import_generator
from tp_transformer.mathematics.vocabulary import CHARACTERS, MAX_ANSWER, MAX_QUESTION

MAX_REFUSED = 1000
"""Number of consecutive excluded draws after which a module is considered exhausted."""

_AT_ONCE = 4096  # questions per request when reading all


class Question(NamedTuple):
    """A question and its answer, as text."""

    question: str
    answer: str


class Questions(abc.ABC):
    """The questions of one module in one split, with random access."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Returns the number of questions, N."""

    @abc.abstractmethod
    def _at(self, index: int) -> Question:
        """Returns the question at an index from 0 to N - 1."""

    def __getitem__(self, index: SupportsIndex) -> Question:
        """Returns one question and its answer; negative indices count from the end.

        Raises:
            IndexError: the index is out of range.
        """
        place = operator.index(index)
        place += len(self) * (place < 0)
        if not 0 <= place < len(self):
            raise IndexError(f"index: got {index}, expected one of {len(self)} questions")
        return self._at(place)

    def take(self, indices: Iterable[int]) -> list[Question]:
        """Returns the questions at indices from 0 to N - 1; may be faster than reading them one by one."""
        return [self._at(index) for index in indices]

    def __iter__(self) -> Iterator[Question]:
        """Iterates over all questions in order."""
        return itertools.chain.from_iterable(map(self.take, itertools.batched(range(len(self)), _AT_ONCE)))

    def lengths(self) -> UInt8[np.ndarray, "N 2"]:
        """Returns the numbers of characters of all questions and answers."""
        pairs = ((len(question), len(answer)) for question, answer in self)
        return np.fromiter(pairs, np.dtype((np.uint8, 2)), len(self))


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Callable[[], Any]]:
    """Flattens the generator's nested dictionaries, joining names with two underscores as in v1.0's files."""
    flat = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{name}__")
        else:
            flat[prefix + name] = value
    return flat


def _third(level: int, entropy: tuple[int | float, int | float]) -> tuple[float, float]:
    """Returns the first, second or last third of a range of entropy: easy, medium, hard."""
    low, width = entropy[0], entropy[1] - entropy[0]
    return low + level / 3 * width, low + (level + 1) / 3 * width


@functools.cache
def _samplers(split: FileSplit) -> dict[str, Callable[[], Any]]:
    """Returns the generator's function for each module of a split."""
    generator = import_generator()
    if split == INTERPOLATE:
        return _flatten(generator.test())
    if split == EXTRAPOLATE:
        return _flatten(generator.test_extra())
    return _flatten(generator.train(functools.partial(_third, LEVELS.index(split))))


_lock = threading.Lock()


@contextlib.contextmanager
def _seeded(key: str) -> Iterator[None]:
    """Seeds the global generators that the package and SymPy use, and restores them afterwards."""
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
    """Hashes a question to 64 bits; the probability of a collision among a million is 3e-8."""
    return int.from_bytes(hashlib.blake2b(question.encode(), digest_size=8).digest(), "big")


def draw(
    split: FileSplit,
    module: str,
    count: int,
    *,
    seed: int,
    part: int = 0,
    exclude: Container[int] = frozenset(),
) -> list[Question]:
    """Draws questions of at most 160 and answers of at most 30 characters; a question may occur twice.

    The same arguments give the same questions in any process. `count` only determines where to stop: a longer
    draw begins with the shorter one. Different values of `part` give different questions, so parts can be
    drawn independently. `exclude` contains fingerprints of questions to skip.

    Raises:
        ValueError: the split or module does not exist, a number is negative, or (nearly) all questions of the
            module are excluded.
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    (module,) = check_modules(split, [module])
    for name, value in (("count", count), ("seed", seed), ("part", part)):
        if value < 0:
            raise ValueError(f"{name}: got {value}, expected at least 0")
    sample = _samplers(split)[module]
    characters = frozenset(CHARACTERS)
    drawn: list[Question] = []
    refused = 0
    with _seeded(f"{seed}/{split}/{module}/{part}"):
        while len(drawn) < count:
            problem = sample()
            question, answer = str(problem.question), str(problem.answer)
            if len(question) > MAX_QUESTION or len(answer) > MAX_ANSWER:
                continue  # as in the original
            if not characters.issuperset(question) or not characters.issuperset(answer):
                raise RuntimeError(f"{split}/{module}: {question!r}, {answer!r} is not in the vocabulary")
            if fingerprint(question) in exclude:
                refused += 1
                if refused >= MAX_REFUSED:
                    raise ValueError(
                        f"exclude: got all of {refused} consecutive draws of {module} of {split}, expected "
                        "some that are not excluded"
                    )
                continue
            refused = 0
            drawn.append(Question(question, answer))
    return drawn
