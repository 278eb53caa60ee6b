"""A fixed evaluation set: 500 questions of each of the 56 + 15 test modules, the same for everyone.

The questions are drawn from the generator with a seed of their own and checked against `DIGESTS`, so that two
people who evaluate on it compare on the same questions. They are not excluded from the training sets of other
seeds: a module with few different questions has some in common with any training set.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tp_transformer import mathematics
from tp_transformer.mathematics.modules import unknown

QUESTIONS = 500
SEED = 2019

Key = tuple[mathematics.Split, str]
"""A test split and one of its modules."""


def keys(modules: Sequence[str] = (), splits: Sequence[mathematics.Split] = ()) -> list[Key]:
    """Returns the test splits with their modules, restricted to names unless none are given.

    Raises:
        ValueError: a name is no test split, or no module of the chosen splits.
    """
    every = (mathematics.INTERPOLATE, mathematics.EXTRAPOLATE)
    for split in splits:
        if split not in every:
            raise unknown("splits", split, every)
    chosen = [split for split in every if not splits or split in splits]
    known = {split: mathematics.modules_of(split) for split in chosen}
    for name in modules:
        if not any(name in names for names in known.values()):
            raise unknown(f"modules of {' and '.join(chosen)}", name, set().union(*known.values()))
    return [(split, name) for split in chosen for name in known[split] if not modules or name in modules]


def source(chosen: Sequence[Key]) -> mathematics.Generator:
    """Returns the part of the set that belongs to some modules."""
    names, extrapolation = (
        [name for split, name in chosen if split == wanted]
        for wanted in (mathematics.INTERPOLATE, mathematics.EXTRAPOLATE)
    )
    return mathematics.Generator(0, QUESTIONS, names, extrapolation, SEED)


def digest(questions: Iterable[mathematics.Question]) -> str:
    """Returns the SHA-256 of questions and answers on alternate lines, as in the files of v1.0."""
    found = hashlib.sha256()
    for question, answer in questions:
        found.update(f"{question}\n{answer}\n".encode())
    return found.hexdigest()


def digest_of_all(digests: Mapping[Key, str]) -> str:
    """Returns the SHA-256 of a set: of a line for each module with its split, name and digest."""
    lines = [f"{split}/{name} {digests[split, name]}\n" for split, name in keys() if (split, name) in digests]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def check(digests: Mapping[Key, str], folder: Path) -> None:
    """Raises ValueError, naming all modules, if drawn questions are not those of the set."""
    wrong = [
        f"{split}/{name}"
        for (split, name), found in digests.items()
        if not found.startswith(DIGESTS[split][name])
    ]
    if wrong:
        raise ValueError(
            f"{folder}: got other questions than the set's in {', '.join(wrong)}; expected those of "
            "mathematics-dataset 1.0.1, numpy and sympy as in constraints.txt; remove the folder to draw "
            "again, or give questions with --data"
        )


DIGESTS: dict[str, dict[str, str]] = {}
"""The first 32 digits of each module's digest."""
