"""The eight GLUE tasks of the paper (Table 6, which omits WNLI), read from their published files.

A directory contains one folder per task, as unpacked from the archives at
https://dl.fbaipublicfiles.com/glue/data/ (`CoLA/`, `SST-2/`, `MRPC/`, `QQP/`, `STS-B/`, `MNLI/`, `QNLI/`,
`RTE/`). A task's own folder and TensorFlow Datasets' `glue` also work. MRPC is not among those archives. Its
three files are read as published elsewhere (`msr_paraphrase_train.txt`, `msr_paraphrase_test.txt`,
`mrpc_dev_ids.tsv`), or as the tables that GLUE's download script creates from them.

Quotes in these tables are ordinary characters. CoLA's tables have no header, except for the test split.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from folnet.tasks import tfds as task_tfds
from folnet.tasks.files import damaged, tab_separated
from folnet.tasks.interface import Example, Examples, SequenceTask

_SPLITS = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}
_MNLI_SPLITS = {
    "train": "train.tsv",
    "validation_matched": "dev_matched.tsv",
    "validation_mismatched": "dev_mismatched.tsv",
    "test_matched": "test_matched.tsv",
    "test_mismatched": "test_mismatched.tsv",
}
_COLA_COLUMNS = ("source", "label", "mark", "sentence")
_MRPC_TRAIN = "msr_paraphrase_train.txt"
_MRPC_TEST = "msr_paraphrase_test.txt"
_MRPC_DEV_IDS = "mrpc_dev_ids.tsv"
_SENTEVAL = "https://dl.fbaipublicfiles.com/senteval/senteval_data"

_TOLERATED = 10  # malformed rows that may be skipped, or one in a thousand if that is more


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueTask(SequenceTask):
    """One of the GLUE tasks, with the layout of its tables."""

    folder: str
    """Folder in the directory; also the name of the submission file."""
    columns: tuple[str, ...]
    """Names of the columns with its one or two texts."""
    label_column: str = "label"
    in_files: tuple[str, ...] = ()
    """Names of the classes in files, in our order; `classes` if empty."""
    headerless: bool = False
    """Whether the tables of train and dev have no header."""
    misshapen: bool = False
    """Whether to skip rows of train and dev with a wrong number of columns, as is customary for this task."""
    tfds_columns: tuple[str, ...] = ()
    """Names of the texts in TFDS, if different."""

    @property
    def files(self) -> Mapping[str, str]:
        """The file name of each split's table."""
        return _MNLI_SPLITS if self.name == "mnli" else _SPLITS

    @property
    def labels_in_files(self) -> tuple[str, ...]:
        """Names of the classes in files and submissions."""
        return self.in_files or self.classes

    def submission(self, split: str) -> str:
        """Returns the file name of a split's predictions: GLUE's for a test split.

        The server expects all tables in one archive, with two that are not made here: WNLI.tsv and AX.tsv.
        """
        if split.startswith("test"):
            ending = {"test_matched": "-m", "test_mismatched": "-mm"}.get(split, "")
            return f"{self.folder}{ending}.tsv"
        return f"{self.folder}_{split}.tsv"

    def find(self, directory: Path, split: str) -> Path | None:
        """Returns a split's table, or the folder with MRPC's own files or a copy prepared by TFDS."""
        folders = [directory / self.folder]
        # All tasks use the same file names, so the directory itself is not searched if it contains the task's
        # folder or belongs to another task.
        if not folders[0].is_dir() and directory.name not in _FOLDERS - {self.folder}:
            folders.append(directory)
        for folder in folders:
            if (path := folder / self.files[split]).is_file():
                return path
            needed = [_MRPC_TEST] if split == "test" else [_MRPC_TRAIN, _MRPC_DEV_IDS]
            if self.name == "mrpc" and all((folder / name).is_file() for name in needed):
                return folder
        return task_tfds.prepared(directory, f"glue/{self.name}")

    def looked_for(self, split: str) -> str:
        """Returns the name of the table; for MRPC also of its own files."""
        table = f"{self.folder}/{self.files[split]}"
        if self.name != "mrpc":
            return table
        own = _MRPC_TEST if split == "test" else f"{_MRPC_TRAIN} with {_MRPC_DEV_IDS}"
        return f"{table} or {self.folder}/{own}"

    def examples(self, directory: str | os.PathLike[str], split: str) -> Examples:
        """Reads a split; see `SequenceTask`. Labels of test splits are not published and are None."""
        path = self.place(directory, split)
        if path.is_file():
            found = self._from_table(path, split)
        elif (path / task_tfds.INFO).is_file():
            found = self._from_tfds(path, split)
        else:
            found = Examples(list(self._from_msr(path, split)))
        if not found:
            raise ValueError(f"{path}: got no rows of {split}, expected at least one")
        return found

    def _from_table(self, path: Path, split: str) -> Examples:
        """Reads the rows of a table."""
        test = split.startswith("test")
        header, rows = tab_separated(path, _COLA_COLUMNS if self.headerless and not test else None)
        # If a test table has labels, they are not those of the benchmark.
        wanted = self.columns if test else (*self.columns, self.label_column)
        if missing := [name for name in wanted if name not in header]:
            raise damaged(path, 1, f"got the header {header}, expected one with {', '.join(missing)}")
        texts = [header.index(name) for name in self.columns]
        label_at = None if test else header.index(self.label_column)
        index_at = next((header.index(name) for name in ("index", "id") if test and name in header), None)
        found, skipped = [], []
        for place, (number, fields) in enumerate(rows):
            if len(fields) != len(header):
                problem = damaged(path, number, f"got {len(fields)} columns, expected {len(header)}")
                if not self.misshapen or test:
                    raise problem
                skipped.append(str(problem))
                continue
            label = None if label_at is None else self._label(path, number, fields[label_at])
            # Some questions of QQP are empty, so one text of a pair may be empty.
            if not any(fields[at].strip() for at in texts):
                raise damaged(path, number, f"empty {' and '.join(self.columns)}")
            index = str(place) if index_at is None else fields[index_at]
            second = fields[texts[1]] if len(texts) > 1 else None
            found.append(Example(index, fields[texts[0]], second, label))
        if len(skipped) > max(_TOLERATED, len(rows) // 1000):
            raise ValueError(
                f"{skipped[0]} ({len(skipped)} of {len(rows)} rows are malformed, so the file is damaged)"
            )
        return Examples(found, skipped)

    def _from_msr(self, folder: Path, split: str) -> Iterator[Example]:
        """Reads MRPC from its own files: a list of id pairs defines dev, the rest is for training.

        The test file's labels are ignored, as in GLUE.
        """
        path = folder / (_MRPC_TEST if split == "test" else _MRPC_TRAIN)
        ids = set()
        if split != "test":
            for number, fields in tab_separated(folder / _MRPC_DEV_IDS, ("#1 ID", "#2 ID")).rows:
                if len(fields) != 2:
                    raise damaged(folder / _MRPC_DEV_IDS, number, f"got {len(fields)} columns, expected 2")
                ids.add(tuple(fields))
        header, rows = tab_separated(path)
        expected = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
        if header != expected:
            raise damaged(path, 1, f"got the header {header}, expected {expected}")
        for number, fields in rows:
            if len(fields) != len(header):
                raise damaged(path, number, f"got {len(fields)} columns, expected {len(header)}")
            label = self._label(path, number, fields[0])
            if split == "test" or ((fields[1], fields[2]) in ids) == (split == "validation"):
                yield Example(str(number - 2), fields[3], fields[4], None if split == "test" else label)

    def _label(self, path: Path, number: int, text: str) -> int | float:
        if (label := self.parsed(text)) is None:
            raise damaged(path, number, f"got the label {text!r}, expected {self.expected}")
        return label

    def _from_tfds(self, folder: Path, split: str) -> Examples:
        """Reads a prepared copy, in the order of the published files."""
        names = self.tfds_columns or self.columns
        found = []
        for where, record in task_tfds.records(folder, split):
            if missing := [name for name in (*names, "label", "idx") if name not in record]:
                raise ValueError(f"{where}: missing {missing[0]}")
            label = None if split.startswith("test") else record["label"]
            if label is not None and self.bounds is None and not 0 <= label < len(self.classes):
                raise ValueError(f"{where}: got the label {label}, expected 0 to {len(self.classes) - 1}")
            texts = [record[name] for name in names]
            second = texts[1] if len(texts) > 1 else None
            found.append((record["idx"], Example(str(record["idx"]), texts[0], second, label)))
        return Examples([example for _, example in sorted(found, key=lambda pair: pair[0])])


def _glue(
    name: str,
    folder: str,
    *,
    archive: str = "",
    columns: tuple[str, ...] = ("sentence1", "sentence2"),
    metrics: tuple[str, ...] = ("accuracy",),
    **settings,
) -> GlueTask:
    archive = f"{archive or folder}.zip"
    get = f"curl -LO https://dl.fbaipublicfiles.com/glue/data/{archive} && unzip {archive}"
    if name == "mrpc":
        get = (
            f"mkdir -p MRPC && cd MRPC && curl -LO {_SENTEVAL}/{_MRPC_TRAIN} "
            f"-LO {_SENTEVAL}/{_MRPC_TEST}, and "
            f"{_MRPC_DEV_IDS} in the same folder (see _MRPC_DEV_IDS in tensorflow_datasets/text/glue.py)"
        )
    return GlueTask(
        name=name,
        folder=folder,
        columns=columns,
        metrics=metrics,
        splits=tuple(_MNLI_SPLITS if name == "mnli" else _SPLITS),
        max_length=128,
        download=f"{get}; or {task_tfds.command(f'glue/{name}')}",
        **settings,
    )


_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")

GLUE: tuple[GlueTask, ...] = (
    _glue(
        "mnli",
        "MNLI",
        tfds_columns=("premise", "hypothesis"),
        label_column="gold_label",
        classes=("entailment", "neutral", "contradiction"),
    ),
    _glue(
        "qqp",
        "QQP",
        columns=("question1", "question2"),
        label_column="is_duplicate",
        classes=("not_duplicate", "duplicate"),
        in_files=_BINARY,
        metrics=("accuracy", "f1"),
        misshapen=True,
    ),
    _glue("qnli", "QNLI", archive="QNLIv2", columns=("question", "sentence"), classes=_ENTAILMENT),
    _glue("sst2", "SST-2", columns=("sentence",), classes=("negative", "positive"), in_files=_BINARY),
    _glue(
        "cola",
        "CoLA",
        columns=("sentence",),
        classes=("unacceptable", "acceptable"),
        in_files=_BINARY,
        metrics=("matthews",),
        headerless=True,
    ),
    _glue(
        "stsb",
        "STS-B",
        label_column="score",
        bounds=(0.0, 5.0),
        metrics=("spearman", "pearson"),
    ),
    _glue(
        "mrpc",
        "MRPC",
        columns=("#1 String", "#2 String"),
        tfds_columns=("sentence1", "sentence2"),
        label_column="Quality",
        classes=("not_equivalent", "equivalent"),
        in_files=_BINARY,
        metrics=("accuracy", "f1"),
    ),
    _glue("rte", "RTE", classes=_ENTAILMENT),
)
"""The tasks in the order of Table 3. Classes are numbered as in TFDS."""

_FOLDERS = {task.folder for task in GLUE}

COLUMNS: Mapping[str, tuple[str, str]] = {
    "MNLI-m": ("mnli", "validation_matched"),
    "MNLI-mm": ("mnli", "validation_mismatched"),
    "QQP": ("qqp", "validation"),
    "QNLI": ("qnli", "validation"),
    "SST-2": ("sst2", "validation"),
    "CoLA": ("cola", "validation"),
    "STS-B": ("stsb", "validation"),
    "MRPC": ("mrpc", "validation"),
    "RTE": ("rte", "validation"),
}
"""Task and split of each column of Tables 3, 4 and 10; `metrics` has the metric."""

SMALL = ("cola", "stsb", "mrpc", "rte")
"""Table 9's "GLUE-small"; the other four are "GLUE-big"."""
