"""Tables of your own data: JSON lines, CSV, TSV and Parquet, and data sets by name.

    table = tables.read(tables.source("train.jsonl"))
    table = tables.read(tables.source("tfds:glue/rte:validation"))                    # prepared by TFDS
    table = tables.read(tables.source("datasets:nyu-mll/glue,rte:train[:90%]"))       # of Hugging Face

A name is `tfds:NAME[:SPLIT]` or `datasets:NAME[,CONFIG][:SPLIT]`; without a split it is that of its role.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import logic_zoo
from folnet.tasks import tfds as task_tfds
from folnet.tasks.files import damaged, lines_of, text_of

ENDINGS = ".jsonl, .csv, .tsv or .parquet"
SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet")
TFDS, DATASETS = "tfds", "datasets"
PREPARED = Path("~/tensorflow_datasets")
"""TFDS's own folder."""


class Named(NamedTuple):
    """A split of a data set that TFDS or Hugging Face knows by its name."""

    catalog: str
    """`TFDS` or `DATASETS`."""
    name: str
    split: str
    directory: Path
    """For TFDS, the folder of prepared data sets."""

    def __str__(self) -> str:
        return f"{self.catalog}:{self.name}:{self.split}"


type Source = Path | Named


def source(name: str, split: str = "train", directory: str | Path = "") -> Source:
    """Returns the file or the data set of a name on a command line.

    Args:
        name: a path, or see above.
        split: the data set's part, if the name has none.
        directory: of data sets prepared by TFDS; "" is TFDS's own.

    Raises:
        ValueError: the data set has no name.
    """
    catalog, colon, rest = name.partition(":")
    if catalog not in (TFDS, DATASETS) or not colon:
        return Path(name).expanduser()
    called, _, part = rest.partition(":")
    if not called:
        raise ValueError(f"got {name!r}, expected {catalog}:NAME or {catalog}:NAME:SPLIT")
    return Named(catalog, called, part or split, Path(directory or PREPARED).expanduser())


def missing(found: Source) -> str:
    """Returns what was expected if a file, or a data set that TFDS should have prepared, does not exist."""
    if isinstance(found, Path):
        return "" if found.is_file() else "an existing file"
    if found.catalog == DATASETS or task_tfds.prepared(found.directory, found.name):
        return ""
    command = task_tfds.command(found.name)
    return f"{found.name} prepared in {found.directory}. Get it: {command} --data_dir={found.directory}"


class Table(NamedTuple):
    """The rows of a file or a data set, as texts or, except from CSV and TSV, as any values."""

    path: Source
    names: tuple[str, ...]
    """Names of the columns; for JSON lines those of all rows, in order of appearance."""
    rows: Sequence[tuple[int, Mapping[str, Any]]]
    """The line and the values of each row."""


def read(path: Source) -> Table:
    """Reads a file by its ending, or a data set.

    A file is one of .jsonl, .csv (fields may be quoted), .tsv (quotes are plain characters) and .parquet,
    whose rows count as lines, like those of data sets. Blank lines are left out. Classes of a data set have
    their names, and are missing where their number is -1.

    Raises:
        ValueError: another ending; or the file is missing, empty, not UTF-8 or damaged, with the line; or
            there is no such data set.
    """
    if isinstance(path, Named):
        return (_prepared if path.catalog == TFDS else _downloaded)(path)
    match path.suffix:
        case ".jsonl":
            rows = [(n, _record(path, n, line)) for n, line in enumerate(lines_of(path), 1) if line.strip()]
            return Table(path, tuple(dict.fromkeys(name for _, row in rows for name in row)), rows)
        case ".csv":
            return _fields(path, csv.reader(io.StringIO(text_of(path), newline=""), strict=True))
        case ".tsv":
            text = io.StringIO(text_of(path), newline="")
            return _fields(path, csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE))
        case ".parquet":
            return _columnar(path)
    raise ValueError(f"{path}: got the ending {path.suffix!r}, expected {ENDINGS}")


def _record(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise damaged(path, number, f"not JSON ({error})") from error
    if not isinstance(found, dict) or not found:
        raise damaged(path, number, f'got {line.strip():.40}, expected an object such as {{"text": ...}}')
    return found


def _columnar(path: Path) -> Table:
    with logic_zoo.extra("data"):
        import pyarrow.parquet as parquet  # lazily: few files need it

    try:
        file = parquet.ParquetFile(path)
        rows = file.read().to_pylist()
    except FileNotFoundError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except (OSError, ValueError) as error:  # which Arrow's errors are
        raise ValueError(f"{path}: not Parquet ({str(error).strip()})") from error
    if not rows:
        raise damaged(path, 1, "the file has no rows")
    return Table(path, tuple(rows[0]), list(enumerate(rows, 1)))


def _fields(path: Path, reader: Any) -> Table:
    rows, line = [], 1
    try:
        for row in reader:
            if any(field.strip() for field in row):
                rows.append((line, row))
            line = reader.line_num + 1
    except csv.Error as error:
        raise damaged(path, line, str(error)) from error
    if not rows:
        raise damaged(path, 1, "all fields are empty")
    (first, names), *rest = rows
    names = [name.strip() for name in names]
    if len(set(names)) < len(names) or not all(names):
        raise damaged(path, first, f"got the header {names}, expected a different name for each column")
    if not rest:
        raise damaged(path, first, "no rows follow the header")
    for line, row in rest:
        if len(row) != len(names):
            raise damaged(path, line, f"got {len(row)} fields, expected {len(names)} as in the header")
    return Table(path, tuple(names), [(line, dict(zip(names, row, strict=True))) for line, row in rest])


def _prepared(path: Named) -> Table:
    if wanted := missing(path):
        raise ValueError(f"{path}: not found, expected {wanted}")
    folder = task_tfds.prepared(path.directory, path.name)
    assert folder is not None
    classes = task_tfds.class_names(folder)
    return _of_records(path, [record for _, record in task_tfds.records(folder, path.split)], classes)


def _downloaded(path: Named) -> Table:
    try:
        import datasets  # pyrefly: ignore  # optional, and large
    except ModuleNotFoundError as error:
        raise ValueError(f"{path}: the package `datasets` is not installed: pip install datasets") from error
    name, _, config = path.name.partition(",")
    try:
        found = datasets.load_dataset(name, config or None, split=path.split)
    except Exception as error:  # of many classes: no network, no such name, no such split
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
        raise ValueError(f"{path}: not found by the package `datasets`: {reason}") from error
    inner = {key: getattr(feature, "feature", feature) for key, feature in found.features.items()}
    classes = {key: tuple(each.names) for key, each in inner.items() if getattr(each, "names", None)}
    return _of_records(path, list(found), classes)


def _of_records(
    path: Named, records: Sequence[Mapping[str, Any]], classes: Mapping[str, Sequence[str]]
) -> Table:
    """A table of records, whose numbers of classes become names."""

    def named(value: Any, names: Sequence[str]) -> Any:
        if isinstance(value, list):
            return [named(each, names) for each in value]
        return names[value] if isinstance(value, int) and 0 <= value < len(names) else None

    if not records:
        raise damaged(path, 1, "the data set has no rows")
    rows = [
        {key: named(value, classes[key]) if key in classes else value for key, value in record.items()}
        for record in records
    ]
    return Table(path, tuple(rows[0]), list(enumerate(rows, 1)))


def text_at(path: Source, line: int, row: Mapping[str, Any], column: str) -> str:
    """Returns the text in a column of a row; raises ValueError with file and line if there is none."""
    if column not in row:
        raise damaged(path, line, f"missing {column!r}")
    if not isinstance(value := row[column], str):
        raise damaged(path, line, f"{column}: got {value!r:.40}, expected a text")
    if not value.strip():
        raise damaged(path, line, f"{column}: the text is empty")
    return value.strip()
