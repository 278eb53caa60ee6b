"""FOLIO (Han et al. 2022): does a conclusion follow from premises? True, False or Unknown.

As in Appendix B.1 the premises are one sequence and the conclusion is the other, at 512 tokens. There are two
releases: v0.0, which the paper used (1,004 and 204 examples; a test set is not published), with the premises
as a list, and v2, with the premises in one string, a line each. The third class is Unknown in one file of
v0.0 and Uncertain in the others.
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
    """The natural-language half of it; the formulas are not read."""

    def find(self, directory: Path, split: str) -> Path | None:
        """The file of a split: v0.0 before v2, as is or in the folders of a clone."""
        folders = ("", "FOLIO", "data/v0.0", "FOLIO/data/v0.0")
        paths = (directory / folder / name for folder in folders for name in _FILES[split])
        return next((path for path in paths if path.is_file()), None)

    def looked_for(self, split: str) -> str:
        """The file's two names."""
        return " or ".join(_FILES[split])

    def examples(self, directory: str | os.PathLike[str], split: str) -> Examples:
        """Reads a split; see `SequenceTask`. Blank premises, which v0.0 has some of, are left out."""
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
            raise damaged(path, number, f"not an object but {type(record).__name__}")
        if missing := [name for name in ("premises", "conclusion", "label") if name not in record]:
            raise damaged(path, number, f"there is no {missing[0]!r}")
        premises = record["premises"]
        premises = premises.split("\n") if isinstance(premises, str) else premises
        texts = [*premises, record["conclusion"]] if isinstance(premises, list) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise damaged(
                path, number, "premises must be a list of texts or a text, and the conclusion a text"
            )
        premises = [premise.strip() for premise in premises if premise.strip()]
        conclusion = record["conclusion"].strip()
        if not premises or not conclusion:
            raise damaged(path, number, "there is no premise" if conclusion else "the conclusion is empty")
        if record["label"] not in _LABELS:
            raise damaged(path, number, f"the label is {record['label']!r}, expected {' or '.join(_LABELS)}")
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
