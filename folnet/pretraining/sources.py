"""Documents in files: plain text, array_record, or whichever of these a path contains."""

import bisect
import os
from pathlib import Path

import numpy as np

from folnet.pretraining.documents import Document, Documents, unwrap
from folnet.pretraining.python import language_reference
from folnet.pretraining.records import Records, is_record_file, record_files

PYTHON = "python"
"""Name of the language reference, accepted in place of a path."""


class TextFiles(Documents):
    """UTF-8 text, with one document per file or per block between blank lines.

    Files with one document each may be wrapped, as books are. In files with blank lines between documents, a
    line is a paragraph or a sentence, as in the input of BERT's own programs.
    """

    def __init__(self, path: str | os.PathLike[str], *, blank_lines: bool = False):
        """Finds the documents; reads the files once if `blank_lines` is set.

        Args:
            path: a file, or a folder whose files `*.txt` are read, including those in subfolders.
            blank_lines: whether blank lines separate documents; otherwise each file is a document, and blank
                lines separate paragraphs.

        Raises:
            ValueError: If there are no such files, or they are empty.
        """
        path = Path(path).expanduser()
        self.files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
        if not self.files or not self.files[0].is_file():
            raise ValueError(f"path: got {path}, expected a text file or a folder with files *.txt")
        self.name = str(path)
        self._blank_lines = blank_lines
        self._spans = [_spans(file) for file in self.files] if blank_lines else None
        counts = [1] * len(self.files) if self._spans is None else [len(spans) for spans in self._spans]
        self._ends = np.cumsum(counts).tolist()
        if not len(self):
            raise ValueError(f"path: got {path}, which is empty, expected some text")

    def __len__(self) -> int:
        return self._ends[-1]

    def _at(self, index: int) -> Document:
        number = bisect.bisect_right(self._ends, index)
        file = self.files[number]
        if self._spans is None:
            return Document(str(file), unwrap(_text(file, 0, None)))
        place = index - (self._ends[number - 1] if number else 0)
        start, end = self._spans[number][place].tolist()
        return Document(f"{file}, document {place}", _text(file, start, end))


def _spans(file: Path) -> np.ndarray:
    """Returns the bounds of a file's documents in bytes, [N, 2], reading it line by line."""
    spans, position, inside = [], 0, False
    with open(file, "rb") as lines:
        for line in lines:
            start, position = position, position + len(line)
            if not line.strip():
                inside = False
            elif inside:
                spans[-1][1] = position
            else:
                spans.append([start, position])
                inside = True
    return np.asarray(spans, np.int64).reshape(-1, 2)


def _text(file: Path, start: int, end: int | None) -> str:
    with open(file, "rb") as stream:
        stream.seek(start)
        data = stream.read(-1 if end is None else end - start)
    try:
        return data.decode("utf-8-sig" if start == 0 else "utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        with open(file, "rb") as stream:
            line = stream.read(start + error.start).count(b"\n") + 1
        raise ValueError(f"{file}, line {line}: not UTF-8 ({error.reason})") from error


class ArrayRecordTexts(Documents):
    """array_record files with one UTF-8 text per record."""

    def __init__(self, path: str | os.PathLike[str]):
        """Opens a file or those of a folder; raises ValueError if there are none or one is damaged."""
        path = Path(path).expanduser()
        self.files = record_files(path) if path.is_dir() else [path]
        if not self.files:
            raise ValueError(f"path: got {path}, expected an array_record file or a folder with some")
        self.name = str(path)
        self._records = Records(self.files)

    def __len__(self) -> int:
        return len(self._records)

    def _at(self, index: int) -> Document:
        where = self._records.where(index)
        (data,) = self._records.read([index])
        try:
            return Document(where, data.decode("utf-8").replace("\r\n", "\n"))
        except UnicodeDecodeError as error:
            raise ValueError(f"{where}: not UTF-8 ({error.reason} at byte {error.start})") from error


def open_documents(
    source: str | os.PathLike[str],
    *,
    split: str = "train",
    feature: str = "text",
    blank_lines: bool | None = None,
) -> Documents:
    """Opens the documents at a path, choosing the reader by its contents.

    Args:
        source: `python` (the language reference); a folder prepared by TensorFlow Datasets, such as
            `tensorflow_datasets/wikipedia/20230601.en/1.0.0`; a folder with array_record files, or one of
            them; a folder with files `*.txt`; or a single text file.
        split: split of a prepared data set.
        feature: name of the text in a prepared data set.
        blank_lines: whether blank lines separate the documents of text files; by default True for a single
            file.

    Raises:
        ValueError: If the path contains none of these.
    """
    if source == PYTHON:
        return language_reference()
    path = Path(source).expanduser()
    if path.is_dir():
        if (path / "dataset_info.json").is_file():
            from folnet.pretraining.tfds import TFDSDocuments

            return TFDSDocuments(path, split, feature)
        if versions := [*path.glob("*/dataset_info.json"), *path.glob("*/*/dataset_info.json")]:
            listed = ", ".join(sorted(str(version.parent.relative_to(path)) for version in versions)[:5])
            raise ValueError(
                f"source: got {path}, which has {listed}, expected one version of a prepared data set"
            )
        if record_files(path):
            return ArrayRecordTexts(path)
        return TextFiles(path, blank_lines=bool(blank_lines))
    if path.is_file() and is_record_file(path):
        return ArrayRecordTexts(path)
    if not path.is_file():
        raise ValueError(f"source: got {path}, which does not exist, expected {PYTHON!r}, a folder or a file")
    return TextFiles(path, blank_lines=blank_lines is None or blank_lines)
