"""Windows on disk, for text that does not fit into memory: array_record files, and one that says what they
are.

    DIRECTORY/pretraining.json             how they were made, and how many there are
    DIRECTORY/vocab.txt                    the pieces
    DIRECTORY/train-00000.array_record     windows of some documents, in their order
    DIRECTORY/held_out-00000.array_record  those of held-out documents among them

`python -m experiments.folnet_data` writes them.
"""

import dataclasses
import json
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from folnet.pretraining.records import Records, write_records
from folnet.pretraining.windows import SPECIAL, Window, Windows
from folnet.tokenization import WordPieceTokenizer
from folnet.writing import write_whole

MANIFEST, VOCABULARY = "pretraining.json", "vocab.txt"
SPLITS = TRAIN, HELD_OUT = ("train", "held_out")

_HEADER = struct.Struct("<IIHH")  # place, count, tokens, starts; then those, two bytes each
_LEAST = 2  # tokens of a window


@dataclasses.dataclass(frozen=True)
class Manifest:
    """How a directory of windows was made. Two that are made alike are alike to the bit."""

    source: str
    """What the documents are."""
    documents: int
    """How many."""
    shard_documents: int
    """How many of them a file has."""
    vocabulary: str
    """The tokenizer's fingerprint."""
    lowercase: bool
    length: int
    packing: str
    short_fraction: float
    held_out: float
    seed: int
    splits: dict[str, list[dict[str, int]]] = dataclasses.field(default_factory=dict)
    """Once it is finished: for each split and file, its `shard`, `windows`, `tokens` and `documents`."""

    @property
    def shards(self) -> int:
        """Parts in which the documents are gone through."""
        return -(-self.documents // self.shard_documents)

    def write(self, directory: Path) -> None:
        """Writes it, whole or not at all."""
        write_json(directory / MANIFEST, dataclasses.asdict(self))

    @classmethod
    def read(cls, directory: str | os.PathLike[str]) -> "Manifest":
        """Reads it; raises ValueError if it is missing or damaged."""
        path = Path(directory).expanduser() / MANIFEST
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(f"directory must hold prepared windows, {path}: {error.strerror}") from error
        except ValueError as error:
            raise ValueError(f"{path}: not JSON ({error})") from error
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(values, dict) or set(values) != names:
            raise ValueError(f"{path}: expected the fields {', '.join(sorted(names))}")
        kinds: Any = {field.name: field.type for field in dataclasses.fields(cls) if field.name != "splits"}
        try:
            for name, kind in kinds.items():
                if not isinstance(values[name], (int, float) if kind is float else kind):
                    raise TypeError(f"{name} is {values[name]!r:.60}")
            check_splits(values["splits"])
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"{path}: damaged ({error!r})") from error
        return cls(**values)


def check_splits(splits: Any) -> None:
    """Raises KeyError, TypeError or ValueError if what is said of files is incomplete or of a wrong kind."""
    if not isinstance(splits, dict):
        raise TypeError(f"splits are {splits!r:.60}")
    for split in SPLITS if splits else ():
        for part in splits[split]:
            for name in ("shard", "windows", "tokens", "documents"):
                if not isinstance(part[name], int):
                    raise TypeError(f"{name} of {split} is {part[name]!r:.60}")
                if part[name] < 0:
                    raise ValueError(f"{name} of {split} is {part[name]}")


def write_json(path: Path, values: Any) -> None:
    """Writes a JSON file, whole or not at all."""
    write_whole(path, json.dumps(values, indent=1) + "\n")


def shard_path(directory: Path, split: str, shard: int) -> Path:
    """The file of a split's part."""
    return directory / f"{split}-{shard:05d}.array_record"


def encode(window: Window) -> bytes:
    """A window as a record."""
    header = _HEADER.pack(window.place, window.count, len(window.tokens), len(window.starts))
    return b"".join((header, *(part.astype("<u2").tobytes() for part in (window.tokens, window.starts))))


def decode(record: bytes, room: int) -> Window:
    """A window of a record; raises ValueError if it is none, or has numbers that it cannot have."""
    if len(record) < _HEADER.size:
        raise ValueError(f"{len(record)} bytes, expected at least {_HEADER.size}")
    place, count, tokens, starts = _HEADER.unpack_from(record)
    if len(record) != _HEADER.size + 2 * (tokens + starts):
        raise ValueError(f"{len(record)} bytes, expected those of {tokens} tokens and {starts} sentences")
    if not _LEAST <= tokens <= room or (place >= count and (place, count) != (0, 0)):
        raise ValueError(
            f"window {place} of {count} with {tokens} tokens, expected {_LEAST} to {room} tokens"
        )
    values = np.frombuffer(record, "<u2", offset=_HEADER.size)
    return Window(values[:tokens], values[tokens:], place, count)


def write_windows(path: str | os.PathLike[str], windows: Iterable[Window]) -> dict[str, int]:
    """Writes windows, all of a document together and in their order; without any there is no file.

    Returns how many `windows`, `tokens` and `documents` (those that have windows of their own) it has.
    """
    counts = {"windows": 0, "tokens": 0, "documents": 0}

    def records() -> Iterable[bytes]:
        for window in windows:
            counts["windows"] += 1
            counts["tokens"] += len(window.tokens)
            counts["documents"] += window.count > 0 and window.place == 0
            yield encode(window)

    write_records(path, records())
    return counts


class PreparedWindows(Windows):
    """The windows of a split of a prepared directory."""

    def __init__(self, directory: str | os.PathLike[str], split: str = TRAIN):
        """Opens the files of a split, `train` or `held_out`, and counts their windows.

        Raises:
            ValueError: the preparation is not finished, the split has nothing, or a file is not as it was
                written.
        """
        self.directory = Path(directory).expanduser()
        self.manifest = Manifest.read(self.directory)
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
        if not self.manifest.splits:
            raise ValueError(f"{self.directory}: its preparation is not finished: start it again")
        parts = [part for part in self.manifest.splits[split] if part["windows"]]
        if not parts:
            raise ValueError(
                f"{self.directory} has no windows of {split} (held_out={self.manifest.held_out})"
            )
        self.room = self.manifest.length - SPECIAL
        self.packing, self.vocabulary = self.manifest.packing, self.manifest.vocabulary
        self.num_tokens = sum(part["tokens"] for part in parts)
        """Tokens of all windows."""
        files = [shard_path(self.directory, split, part["shard"]) for part in parts]
        self._records = Records(files)
        for file, part, found in zip(files, parts, self._records.sizes, strict=True):
            if found != part["windows"]:
                raise ValueError(f"{file}: {found} windows, expected {part['windows']}; prepare it again")

    def tokenizer(self) -> WordPieceTokenizer:
        """The tokenizer that made the tokens; raises ValueError if its file is missing or another."""
        path = self.directory / VOCABULARY
        made = WordPieceTokenizer.from_vocabulary(path, lowercase=self.manifest.lowercase)
        if made.fingerprint != self.vocabulary:
            raise ValueError(f"{path}: vocabulary {made.fingerprint}, expected {self.vocabulary}")
        return made

    def __len__(self) -> int:
        return len(self._records)

    def take(self, indices: Sequence[int]) -> list[Window]:
        found = []
        for index, record in zip(indices, self._records.read(indices), strict=True):
            try:
                found.append(decode(record, self.room))
            except ValueError as error:
                raise ValueError(f"{self._records.where(index)}: damaged ({error})") from error
        return found
