"""Sources of questions: three sources with a common interface.

- `TextDirectory`: a folder of text files, as published by DeepMind (v1.0) and as written by `generate`.
- `TFDSDirectory`: a `math_dataset` prepared by TensorFlow Datasets, read without TensorFlow.
- `Generator`: the generator itself, for sets small enough to be drawn at start-up.
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
    FileSplit,
    Split,
    TFDSSplit,
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

    def modules(self, split: Split) -> tuple[str, ...]:
        """Returns the modules the source has of a split; "train" is the three training splits combined."""
        ...

    def questions(self, split: Split, module: str) -> Questions:
        """Returns the questions of a module; raises ValueError if the split or module does not exist."""
        ...


class Joined(Questions):
    """Concatenation of several `Questions`."""

    def __init__(self, parts: Sequence[Questions]):
        self.parts = tuple(parts)
        self._ends = list(itertools.accumulate(len(part) for part in self.parts))

    def __len__(self) -> int:
        """Returns the number of questions, N."""
        return self._ends[-1]

    def _at(self, index: int) -> Question:
        return self.take([index])[0]

    def _place(self, index: int) -> tuple[int, int]:
        """Returns the part that contains an index, and the index within the part."""
        part = bisect.bisect_right(self._ends, index)
        return part, index - (self._ends[part - 1] if part else 0)

    def take(self, indices: Iterable[int]) -> list[Question]:
        """Returns the questions at the given indices, with one request per part."""
        places = [self._place(index) for index in indices]
        of_part: dict[int, list[int]] = {}
        for part, place in places:
            of_part.setdefault(part, []).append(place)
        found = {part: iter(self.parts[part].take(wanted)) for part, wanted in of_part.items()}
        return [next(found[part]) for part, _ in places]

    def lengths(self) -> UInt8[np.ndarray, "N 2"]:
        """Returns the numbers of characters of all questions and answers."""
        return np.concatenate([part.lengths() for part in self.parts])


class Listed(Questions):
    """Questions held in memory."""

    def __init__(self, questions: Iterable[Question]):
        self._questions = tuple(questions)

    def __len__(self) -> int:
        """Returns the number of questions, N."""
        return len(self._questions)

    def _at(self, index: int) -> Question:
        return self._questions[index]


class TextDirectory:
    """Text files `<split>/<module>.txt`: the published v1.0, unpacked, or output of `generate`.

    A single folder `train` may replace the three levels.
    """

    def __init__(self, directory: str | Path):
        """Opens a folder that contains the splits' folders, or v1.0's; raises ValueError if it has none."""
        directory = Path(directory).expanduser()
        for candidate in (directory, directory / "mathematics_dataset-v1.0"):
            if any((candidate / split).is_dir() for split in (*SPLITS, TRAIN)):
                self.directory = candidate
                return
        raise ValueError(
            f"directory: got {directory}, expected at least one of the folders {', '.join(SPLITS)} in it"
        )

    def modules(self, split: Split) -> tuple[str, ...]:
        """Returns the modules whose files exist; for "train", those with all three levels or one file."""

        def there(folder: str, module: str) -> bool:
            return (self.directory / folder / f"{module}.txt").is_file()

        return tuple(
            module
            for module in modules_of(split)
            if there(split, module) or (split == TRAIN and all(there(level, module) for level in LEVELS))
        )

    def questions(self, split: Split, module: str) -> Questions:
        """Returns the questions of a module; raises ValueError if its file is missing or damaged."""
        (module,) = check_modules(split, [module])
        path = self.directory / split / f"{module}.txt"
        if split == TRAIN and not path.is_file():
            return Joined([self.questions(level, module) for level in LEVELS])
        if not path.is_file():
            unfinished = (self.directory / "generation.json").is_file()
            reason = "generation is not finished, start it again" if unfinished else "no such file"
            have = ", ".join(self.modules(split)) or "none"
            raise ValueError(f"{path}: {reason}; available modules of {split}: {have}")
        return TextQuestions(path)


_TFDS_SPLITS: dict[Split, TFDSSplit] = {TRAIN: "train", INTERPOLATE: "test"}


class TFDSDirectory:
    """A `math_dataset` prepared by TensorFlow Datasets as array_record files.

    It has the training splits combined ("train") and `interpolate` (called "test" there), but no
    extrapolation. Prepare it once, where TensorFlow is installed: `tfds build math_dataset
    --file_format=array_record`.

    Batches need the lengths of all questions, and TFDS takes a minute to read two million of them; use
    `copy_to_text` before training on many modules.
    """

    def __init__(self, directory: str | Path):
        """Opens TFDS's data folder or its `math_dataset`; raises ValueError without a prepared module."""
        directory = Path(directory).expanduser()
        for candidate in (directory / "math_dataset", directory):
            if any(candidate.glob("*/*/dataset_info.json")):
                self.directory = candidate
                return
        raise ValueError(
            f"directory: got {directory}, expected math_dataset/<module>/<version>/dataset_info.json in it"
        )

    def _name(self, split: Split) -> TFDSSplit:
        if split not in _TFDS_SPLITS:
            modules_of(split)  # raises for a name that is no split at all
            raise ValueError(
                f"split: got {split!r}, expected one of {', '.join(_TFDS_SPLITS)} for a TFDS dataset"
            )
        return _TFDS_SPLITS[split]

    def _versions(self, module: str) -> list[Path]:
        """Returns the prepared versions of a module, newest last."""
        folders = (path.parent for path in (self.directory / module).glob("*/dataset_info.json"))
        return sorted(folders, key=lambda path: [int(n) if n.isdigit() else -1 for n in path.name.split(".")])

    def modules(self, split: Split) -> tuple[str, ...]:
        """Returns the modules that have been prepared."""
        self._name(split)
        return tuple(module for module in modules_of(split) if self._versions(module))

    def questions(self, split: Split, module: str) -> Questions:
        """Returns the questions of a module; raises ValueError if it is not prepared as array_record."""
        name = self._name(split)
        (module,) = check_modules(split, [module])
        if not (versions := self._versions(module)):
            have = ", ".join(self.modules(split)) or "none"
            raise ValueError(f"{self.directory / module}: not prepared; available modules of {split}: {have}")
        from tp_transformer.mathematics.tfds import TFDSQuestions

        return TFDSQuestions(versions[-1], name)


@dataclasses.dataclass(frozen=True)
class Generator:
    """A small set that is drawn in this process on first use and kept in memory.

    Training questions never occur in its test splits. For more than some ten thousand questions use
    `generate`: the speed of modules differs by a factor of a thousand.
    """

    train: int = 3000
    """Questions per module in the three training splits together; a multiple of 3."""

    test: int = 100
    """Questions per module in each test split."""

    names: Sequence[str] = MODULES
    """Modules of the training splits and of `interpolate`."""

    extrapolation: Sequence[str] = EXTRAPOLATION_MODULES
    """Modules of `extrapolate`; may be empty."""

    seed: int = 0

    def __post_init__(self):
        """Checks numbers and names, and puts the names into the dataset's order."""
        if self.train < 0 or self.train % 3:
            raise ValueError(
                f"train: got {self.train}, expected a nonnegative multiple of 3 (easy, medium, hard)"
            )
        for name in ("test", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected at least 0")
        if not self.train and not self.test:
            raise ValueError("train, test: got 0 for both, expected at least one positive number")
        for field, split in (("names", INTERPOLATE), ("extrapolation", EXTRAPOLATE)):
            chosen = check_modules(split, getattr(self, field)) if getattr(self, field) else ()
            object.__setattr__(self, field, tuple(name for name in modules_of(split) if name in chosen))
        if not self.names and not self.extrapolation:
            raise ValueError("names, extrapolation: got none, expected at least one module")

    def modules(self, split: Split) -> tuple[str, ...]:
        """Returns the modules of the set in a split."""
        modules_of(split)
        return tuple(self.extrapolation if split == EXTRAPOLATE else self.names)

    def questions(self, split: Split, module: str) -> Questions:
        """Returns the questions of a module; raises ValueError if the module is not in the set."""
        if module not in self.modules(split):
            raise unknown(f"module of {split}", module, self.modules(split))
        if split == TRAIN:
            return Joined([self.questions(level, module) for level in LEVELS])
        return _drawn(self, split, module)


@functools.lru_cache(maxsize=512)
def _drawn(source: Generator, split: FileSplit, module: str) -> Listed:
    exclude = frozenset() if split in TEST else _test_questions(source)
    return Listed(
        question
        for part in parts_of(source, split, module)
        for question in draw(split, module, part.count, seed=source.seed, part=part.number, exclude=exclude)
    )


@functools.lru_cache(maxsize=8)
def _test_questions(source: Generator) -> frozenset[int]:
    """Returns the fingerprints of all test questions of a set."""
    return frozenset(
        fingerprint(question)
        for split in TEST
        for module in source.modules(split)
        for question, _ in _drawn(source, split, module)
    )


def copy_to_text(
    source: Source, directory: str | Path, *, splits: Sequence[Split] | None = None
) -> TextDirectory:
    """Writes the questions of a source as text files, the format that is fastest to read, and opens the copy.

    The directory is created if it does not exist; "train" becomes one file per module. Existing files are
    kept, so the copy can be interrupted and started again. Without `splits`, all that the source has are
    copied: "train", "interpolate" and, but for TFDS, "extrapolate".
    """
    root = Path(directory).expanduser()
    if splits is None:
        every: Sequence[Split] = [*_TFDS_SPLITS] if isinstance(source, TFDSDirectory) else [TRAIN, *TEST]
        splits = [split for split in every if source.modules(split)]
    for split in splits:
        (root / split).mkdir(parents=True, exist_ok=True)
        for module in source.modules(split):
            if not (path := root / split / f"{module}.txt").is_file():
                write_questions(path, source.questions(split, module))
    return TextDirectory(root)


def open_source(directory: str | Path) -> TextDirectory | TFDSDirectory:
    """Opens a folder of text files or of TFDS; raises ValueError if it is neither."""
    problems = []
    for kind in (TextDirectory, TFDSDirectory):
        try:
            return kind(directory)
        except ValueError as error:
            problems.append(str(error))
    raise ValueError("; or ".join(problems))
