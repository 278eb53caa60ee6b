"""Where questions come from: three sources with one interface.

- `TextDirectory`: a folder of text files, as DeepMind published them (v1.0) and as `generate` writes them.
- `TFDSDirectory`: a prepared `math_dataset` of TensorFlow Datasets, read without TensorFlow.
- `Generator`: the generator itself, for sets small enough to be drawn while one waits.
"""

import bisect
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8

from tp_transformer.mathematics.modules import (
    EXTRAPOLATE,
    EXTRAPOLATION_MODULES,
    INTERPOLATE,
    LEVELS,
    MODULES,
    SPLITS,
    TEST,
    TRAIN,
    check_modules,
    modules_of,
    unknown,
)
from tp_transformer.mathematics.parts import parts_of
from tp_transformer.mathematics.questions import Question, Questions, draw, fingerprint
from tp_transformer.mathematics.text import TextQuestions, write_questions


@runtime_checkable
class Source(Protocol):
    """A set of questions by split and module."""

    def modules(self, split: str) -> tuple[str, ...]:
        """The modules it has of a split; "train" is the three training splits as one."""
        ...

    def questions(self, split: str, module: str) -> Questions:
        """The questions of a module in a split; ValueError if there is no such split or module."""
        ...


class Joined(Questions):
    """Several `Questions`, one behind the other."""

    def __init__(self, parts: Sequence[Questions]):
        self.parts = tuple(parts)
        self._ends = list(itertools.accumulate(len(part) for part in self.parts))

    def __len__(self) -> int:
        """Number of questions."""
        return self._ends[-1]

    def _at(self, index: int) -> Question:
        return self.take([index])[0]

    def _place(self, index: int) -> tuple[int, int]:
        """The part that has an index, and where."""
        part = bisect.bisect_right(self._ends, index)
        return part, index - (self._ends[part - 1] if part else 0)

    def take(self, indices: Iterable[int]) -> list[Question]:
        """Questions at some indices: each part is asked once."""
        places = [self._place(index) for index in indices]
        of_part: dict[int, list[int]] = {}
        for part, place in places:
            of_part.setdefault(part, []).append(place)
        found = {part: iter(self.parts[part].take(wanted)) for part, wanted in of_part.items()}
        return [next(found[part]) for part, _ in places]

    def lengths(self) -> UInt8[np.ndarray, "N 2"]:
        """Characters of every question and answer."""
        return np.concatenate([part.lengths() for part in self.parts])


class Listed(Questions):
    """Questions in memory."""

    def __init__(self, questions: Iterable[Question]):
        self._questions = tuple(questions)

    def __len__(self) -> int:
        """Number of questions."""
        return len(self._questions)

    def _at(self, index: int) -> Question:
        return self._questions[index]


class TextDirectory:
    """Text files `<split>/<module>.txt`: the published v1.0, unpacked, or what `generate` wrote.

    Instead of the three levels there may be one folder `train`.
    """

    def __init__(self, directory: str | Path):
        """Of the splits' folders, or the one around v1.0's; ValueError if none of the splits is in it."""
        directory = Path(directory).expanduser()
        for candidate in (directory, directory / "mathematics_dataset-v1.0"):
            if any((candidate / split).is_dir() for split in (*SPLITS, TRAIN)):
                self.directory = candidate
                return
        raise ValueError(
            f"directory must have at least one of the folders {', '.join(SPLITS)}, got {directory}"
        )

    def modules(self, split: str) -> tuple[str, ...]:
        """The modules whose files are there; for "train" those that have all three levels, or one file."""

        def there(folder: str, module: str) -> bool:
            return (self.directory / folder / f"{module}.txt").is_file()

        return tuple(
            module
            for module in modules_of(split)
            if there(split, module) or (split == TRAIN and all(there(level, module) for level in LEVELS))
        )

    def questions(self, split: str, module: str) -> Questions:
        """The questions of a module; ValueError if its file is not there or damaged."""
        (module,) = check_modules(split, [module])
        path = self.directory / split / f"{module}.txt"
        if split == TRAIN and not path.is_file():
            return Joined([self.questions(level, module) for level in LEVELS])
        if not path.is_file():
            unfinished = (self.directory / "generation.json").is_file()
            reason = "its generation is not finished: start it again" if unfinished else "it is not there"
            have = ", ".join(self.modules(split)) or "no module"
            raise ValueError(f"{path}: {reason}; of {split} there is {have}")
        return TextQuestions(path)


_TFDS_SPLITS = {TRAIN: "train", INTERPOLATE: "test"}


class TFDSDirectory:
    """A `math_dataset` that TensorFlow Datasets has prepared, as array_record files.

    It has the training splits as one ("train") and `interpolate` (there called "test"); it has no
    extrapolation. Prepare it once, where TensorFlow is installed:
    `tfds build math_dataset --file_format=array_record`.

    A batch needs the lengths of all questions, and TFDS takes a minute to read two million of them: before
    training on many modules, `copy_to_text` them.
    """

    def __init__(self, directory: str | Path):
        """Of TFDS's data folder, or the `math_dataset` in it; ValueError if no prepared module is there."""
        directory = Path(directory).expanduser()
        for candidate in (directory / "math_dataset", directory):
            if any(candidate.glob("*/*/dataset_info.json")):
                self.directory = candidate
                return
        raise ValueError(
            f"directory must have math_dataset/<module>/<version>/dataset_info.json, got {directory}"
        )

    def _name(self, split: str) -> str:
        if split not in _TFDS_SPLITS:
            modules_of(split)  # a name that does not exist at all is another mistake
            raise ValueError(
                f"split must be one of {', '.join(_TFDS_SPLITS)} for a TFDS dataset, which has no {split}"
            )
        return _TFDS_SPLITS[split]

    def _versions(self, module: str) -> list[Path]:
        """The prepared versions of a module, the newest last."""
        folders = (path.parent for path in (self.directory / module).glob("*/dataset_info.json"))
        return sorted(folders, key=lambda path: [int(n) if n.isdigit() else -1 for n in path.name.split(".")])

    def modules(self, split: str) -> tuple[str, ...]:
        """The modules that are prepared."""
        self._name(split)
        return tuple(module for module in modules_of(split) if self._versions(module))

    def questions(self, split: str, module: str) -> Questions:
        """The questions of a module; ValueError if it is not prepared, or not as array_record."""
        name = self._name(split)
        (module,) = check_modules(split, [module])
        if not (versions := self._versions(module)):
            have = ", ".join(self.modules(split)) or "no module"
            raise ValueError(f"{self.directory / module} is not prepared; of {split} there is {have}")
        from tp_transformer.mathematics.tfds import TFDSQuestions

        return TFDSQuestions(versions[-1], name)


@dataclasses.dataclass(frozen=True)
class Generator:
    """A small set, drawn in this process when it is first asked for, and kept in memory.

    No training question is a question of its test splits. Use `generate` for more than some ten thousand
    questions: modules differ in speed by a factor of a thousand.
    """

    train: int = 3000
    """Questions a module in the three training splits together; a multiple of 3."""

    test: int = 100
    """Questions a module in each test split."""

    names: Sequence[str] = MODULES
    """Modules of the training splits and of `interpolate`."""

    extrapolation: Sequence[str] = EXTRAPOLATION_MODULES
    """Modules of `extrapolate`; may be empty."""

    seed: int = 0

    def __post_init__(self):
        """Checks the numbers and the names, and puts the names into the order of the data set."""
        if self.train < 0 or self.train % 3:
            raise ValueError(
                f"train must be a multiple of 3 (easy, medium, hard), at least 0; got {self.train}"
            )
        for name in ("test", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if not self.train and not self.test:
            raise ValueError("train and test must not both be 0")
        for field, split in (("names", INTERPOLATE), ("extrapolation", EXTRAPOLATE)):
            chosen = check_modules(split, getattr(self, field)) if getattr(self, field) else ()
            object.__setattr__(self, field, tuple(name for name in modules_of(split) if name in chosen))
        if not self.names and not self.extrapolation:
            raise ValueError("names and extrapolation must name at least one module, got none")

    def modules(self, split: str) -> tuple[str, ...]:
        """The modules asked for."""
        modules_of(split)
        return tuple(self.extrapolation if split == EXTRAPOLATE else self.names)

    def questions(self, split: str, module: str) -> Questions:
        """The questions of a module; ValueError if it is not among those asked for."""
        if module not in self.modules(split):
            raise unknown(f"module of {split}", module, self.modules(split))
        if split == TRAIN:
            return Joined([self.questions(level, module) for level in LEVELS])
        return _drawn(self, split, module)


@functools.lru_cache(maxsize=512)
def _drawn(source: Generator, split: str, module: str) -> Listed:
    exclude = frozenset() if split in TEST else _test_questions(source)
    return Listed(
        question
        for part in parts_of(source, split, module)
        for question in draw(split, module, part.count, seed=source.seed, part=part.number, exclude=exclude)
    )


@functools.lru_cache(maxsize=8)
def _test_questions(source: Generator) -> frozenset[int]:
    """Fingerprints of all test questions of a set."""
    return frozenset(
        fingerprint(question)
        for split in TEST
        for module in source.modules(split)
        for question, _ in _drawn(source, split, module)
    )


def copy_to_text(
    source: Source, directory: str | Path, *, splits: Sequence[str] = (TRAIN, INTERPOLATE)
) -> TextDirectory:
    """Writes the questions of a source as text files, the fastest to read.

    Files that are there already are left as they are, so that it can be interrupted and started again.

    The directory is made if it does not exist; "train" becomes one file a module. Returns the copy.
    """
    root = Path(directory).expanduser()
    for split in splits:
        (root / split).mkdir(parents=True, exist_ok=True)
        for module in source.modules(split):
            if not (path := root / split / f"{module}.txt").is_file():
                write_questions(path, source.questions(split, module))
    return TextDirectory(root)


def open_source(directory: str | Path) -> TextDirectory | TFDSDirectory:
    """The source in a folder of text files or of TFDS; ValueError if it is neither."""
    problems = []
    for kind in (TextDirectory, TFDSDirectory):
        try:
            return kind(directory)
        except ValueError as error:
            problems.append(str(error))
    raise ValueError("; or ".join(problems))
