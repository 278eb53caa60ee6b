"""FOLIO (Han et al. 2022): whether a conclusion follows from premises: True, False or Unknown.

As in Appendix B.1, the premises are one sequence and the conclusion the other, with 512 tokens. There are two
releases. v0.0, which the paper used (1,004 and 204 examples, no published test set), has the premises as a
list; v2 has them in a string, one per line. The third class is called Unknown in one file of v0.0 and
Uncertain in the others.
"""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from folnet.tasks.files import damaged, lines_of
from folnet.tasks.interface import Example, Examples, SequenceTask

_FILES = {
    "train": ("folio-train.jsonl", "folio_v2_train.jsonl"),
    "validation": ("folio-validation.jsonl", "folio_v2_validation.jsonl"),
}
_LABELS = {"True": 0, "False": 1, "Unknown": 2, "Uncertain": 2}
_RAW = "https://raw.githubusercontent.com/Yale-LILY/FOLIO/main/data/v0.0"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolioTask(SequenceTask):
    """The natural-language part of FOLIO; the formulas are not read."""

    def find(self, directory: Path, split: str) -> Path | None:
        """Returns the file of a split: v0.0 before v2, in the directory or in the folders of a clone."""
        folders = ("", "FOLIO", "data/v0.0", "FOLIO/data/v0.0")
        paths = (directory / folder / name for folder in folders for name in _FILES[split])
        return next((path for path in paths if path.is_file()), None)

    def looked_for(self, split: str) -> str:
        """Returns the two possible names of the file."""
        return " or ".join(_FILES[split])

    def examples(self, directory: str | os.PathLike[str], split: str) -> Examples:
        """Reads a split; see `SequenceTask`. Blank premises, which occur in v0.0, are left out."""
        path = self.place(directory, split)
        rows = [
            self._example(path, number, line) for number, line in enumerate(lines_of(path), start=1) if line
        ]
        return Examples([row._replace(index=str(place)) for place, row in enumerate(rows)])

    def _example(self, path: Path, number: int, line: str) -> Example:
        try:
            record: Any = json.loads(line)
        except json.JSONDecodeError as error:
            raise damaged(path, number, f"not JSON ({error})") from error
        if not isinstance(record, dict):
            raise damaged(path, number, f"got {type(record).__name__}, expected an object")
        if missing := [name for name in ("premises", "conclusion", "label") if name not in record]:
            raise damaged(path, number, f"missing {missing[0]!r}")
        premises = record["premises"]
        premises = premises.split("\n") if isinstance(premises, str) else premises
        texts = [*premises, record["conclusion"]] if isinstance(premises, list) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise damaged(
                path, number, "expected premises as a list of texts or a text, and the conclusion as a text"
            )
        premises = [premise.strip() for premise in premises if premise.strip()]
        conclusion = record["conclusion"].strip()
        if not premises or not conclusion:
            raise damaged(path, number, "no premises" if conclusion else "empty conclusion")
        if record["label"] not in _LABELS:
            label = record["label"]
            raise damaged(path, number, f"got the label {label!r}, expected {' or '.join(_LABELS)}")
        return Example("", " ".join(premises), conclusion, _LABELS[record["label"]])


FOLIO = FolioTask(
    name="folio",
    splits=tuple(_FILES),
    classes=("True", "False", "Unknown"),
    metrics=("accuracy",),
    max_length=512,
    download=f"curl -LO {_RAW}/folio-train.jsonl -LO {_RAW}/folio-validation.jsonl (CC BY-SA 4.0); or "
    "v2 from https://huggingface.co/datasets/yale-nlp/FOLIO",
)
"""The task of Table 4."""
