"""Windows on disk, for text that does not fit into memory: array_record files and a manifest.

    DIRECTORY/pretraining.json             the manifest: how the windows were made, and their numbers
    DIRECTORY/vocab.txt                    the pieces
    DIRECTORY/train-00000.array_record     windows of a shard of documents, in order
    DIRECTORY/held_out-00000.array_record  windows of held-out documents in the same shard

`python -m experiments.folnet_pretrain.data` writes them.
"""

import dataclasses
import json
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from folnet.pretraining.records import Records, write_records
from folnet.pretraining.windows import SPECIAL, Window, Windows
from folnet.tokenization import WordPieceTokenizer
from logic_zoo.writing import write_whole

MANIFEST, VOCABULARY = "pretraining.json", "vocab.txt"
SplitName = Literal["train", "held_out"]
TRAIN: SplitName = "train"
HELD_OUT: SplitName = "held_out"
SPLITS: tuple[SplitName, ...] = get_args(SplitName)

_HEADER = struct.Struct("<IIHH")  # place, count, tokens, starts; followed by the arrays, two bytes per item
_LEAST = 2  # minimum number of tokens in a window


@dataclasses.dataclass(frozen=True)
class Manifest:
    """How a directory of windows was made; equal settings give bitwise equal directories."""

    source: str
    """Description of the documents."""
    documents: int
    """Number of documents."""
    shard_documents: int
    """Number of documents per shard."""
    vocabulary: str
    """Fingerprint of the tokenizer."""
    lowercase: bool
    length: int
    packing: str
    short_fraction: float
    held_out: float
    seed: int
    splits: dict[SplitName, list[dict[str, int]]] = dataclasses.field(default_factory=dict)
    """When finished: for each split and file, its `shard`, `windows`, `tokens` and `documents`."""

    @property
    def shards(self) -> int:
        """Number of shards into which the documents are divided."""
        return -(-self.documents // self.shard_documents)

    def write(self, directory: Path) -> None:
        """Writes the manifest atomically."""
        write_json(directory / MANIFEST, dataclasses.asdict(self))

    @classmethod
    def read(cls, directory: str | os.PathLike[str]) -> "Manifest":
        """Reads a manifest; raises ValueError if it is missing or damaged."""
        path = Path(directory).expanduser() / MANIFEST
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(
                f"directory: got {path} ({error.strerror}), expected prepared windows"
            ) from error
        except ValueError as error:
            raise ValueError(f"{path}: not JSON ({error})") from error
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(values, dict) or set(values) != names:
            raise ValueError(f"{path}: got other fields, expected {', '.join(sorted(names))}")
        kinds: Any = {field.name: field.type for field in dataclasses.fields(cls) if field.name != "splits"}
        try:
            for name, kind in kinds.items():
                if not isinstance(values[name], (int, float) if kind is float else kind):
                    raise TypeError(f"{name}: got {values[name]!r:.60}")
            check_splits(values["splits"])
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"{path}: damaged ({error!r})") from error
        return cls(**values)


def check_splits(splits: Any) -> None:
    """Raises KeyError, TypeError or ValueError if the list of files is incomplete or of wrong types."""
    if not isinstance(splits, dict):
        raise TypeError(f"splits: got {splits!r:.60}, expected an object")
    for split in SPLITS if splits else ():
        for part in splits[split]:
            for name in ("shard", "windows", "tokens", "documents"):
                if not isinstance(part[name], int):
                    raise TypeError(f"{name} of {split}: got {part[name]!r:.60}, expected an integer")
                if part[name] < 0:
                    raise ValueError(f"{name} of {split}: got {part[name]}, expected at least 0")


def write_json(path: Path, values: Any) -> None:
    """Writes a JSON file atomically."""
    write_whole(path, json.dumps(values, indent=1) + "\n")


def shard_path(directory: Path, split: str, shard: int) -> Path:
    """Returns the path of a split's shard."""
    return directory / f"{split}-{shard:05d}.array_record"


def encode(window: Window) -> bytes:
    """Encodes a window as a record."""
    header = _HEADER.pack(window.place, window.count, len(window.tokens), len(window.starts))
    return b"".join((header, *(part.astype("<u2").tobytes() for part in (window.tokens, window.starts))))


def decode(record: bytes, room: int) -> Window:
    """Decodes a window from a record; raises ValueError if it is malformed or has impossible numbers."""
    if len(record) < _HEADER.size:
        raise ValueError(f"got {len(record)} bytes, expected at least {_HEADER.size}")
    place, count, tokens, starts = _HEADER.unpack_from(record)
    if len(record) != _HEADER.size + 2 * (tokens + starts):
        expected = f"{_HEADER.size + 2 * (tokens + starts)} for {tokens} tokens and {starts} sentences"
        raise ValueError(f"got {len(record)} bytes, expected {expected}")
    if not _LEAST <= tokens <= room or (place >= count and (place, count) != (0, 0)):
        raise ValueError(
            f"got window {place} of {count} with {tokens} tokens, expected {_LEAST} to {room} tokens"
        )
    values = np.frombuffer(record, "<u2", offset=_HEADER.size)
    return Window(values[:tokens], values[tokens:], place, count)


def write_windows(path: str | os.PathLike[str], windows: Iterable[Window]) -> dict[str, int]:
    """Writes windows in order, those of each document together; writes no file if there are none.

    Returns the numbers of `windows`, `tokens` and `documents` (not counting windows across documents).
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
    """The windows of one split in a prepared directory."""

    def __init__(self, directory: str | os.PathLike[str], split: SplitName = TRAIN):
        """Opens the files of a split and counts their windows.

        Raises:
            ValueError: If the preparation is unfinished, the split is empty, or a file has been changed.
        """
        self.directory = Path(directory).expanduser()
        self.manifest = Manifest.read(self.directory)
        if split not in SPLITS:
            raise ValueError(f"split: got {split!r}, expected one of {', '.join(map(repr, SPLITS))}")
        if not self.manifest.splits:
            raise ValueError(f"{self.directory}: got an unfinished preparation, expected a finished one")
        parts = [part for part in self.manifest.splits[split] if part["windows"]]
        if not parts:
            raise ValueError(
                f"{self.directory}: got no windows of {split} (held_out={self.manifest.held_out}), "
                "expected at least one"
            )
        self.room = self.manifest.length - SPECIAL
        self.packing, self.vocabulary = self.manifest.packing, self.manifest.vocabulary
        self.num_tokens = sum(part["tokens"] for part in parts)
        """Number of tokens in all windows."""
        files = [shard_path(self.directory, split, part["shard"]) for part in parts]
        self._records = Records(files)
        for file, part, found in zip(files, parts, self._records.sizes, strict=True):
            if found != part["windows"]:
                raise ValueError(
                    f"{file}: got {found} windows, expected {part['windows']} (prepare it again)"
                )

    def tokenizer(self) -> WordPieceTokenizer:
        """Returns the tokenizer that produced the tokens; raises ValueError if its file has changed."""
        path = self.directory / VOCABULARY
        made = WordPieceTokenizer.from_vocabulary(path, lowercase=self.manifest.lowercase)
        if made.fingerprint != self.vocabulary:
            raise ValueError(f"{path}: got vocabulary {made.fingerprint}, expected {self.vocabulary}")
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
