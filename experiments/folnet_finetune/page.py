"""The page of a run on data of your own, `page.html`: scores, what is confused, the worst errors."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments import runtime
from experiments.folnet_finetune import kinds
from experiments.folnet_finetune.data import Data
from experiments.folnet_finetune.measures import PREDICTIONS
from experiments.runtime import page
from experiments.runtime.experiment import Stop
from folnet.tasks import own

PAGE = "page.html"
SHOWN = 20
"""Number of errors on the page; the files have more."""


def write(workdir: Path, opened: Data, result: runtime.FitResult) -> Path:
    """Writes the page of a finished run from its results and its files of errors; returns its path."""
    assert isinstance(opened.task, own.OwnTask)
    found, splits = result.results, [split.name for split in opened.measured if split.labelled]
    rows = [
        {"data": " and ".join(names), "measure": measure, "value": f"{value:.4g}"}
        for names, metrics in (
            ([split.name for split in opened.dev], found["best"]),
            ([split.name for split in opened.test if split.labelled], found["test"]),
        )
        for measure, value in metrics.items()
        if measure not in ("step", "main")
    ]
    stems = {name: f"{opened.task.name}_{name}" for name in splits}
    pictures = {
        path: f"Labels against predictions on {name}."
        for name, stem in stems.items()
        if (path := workdir / PREDICTIONS / f"{stem}_confusion.png").exists()
    }
    read = ", ".join(f"{name} {value}" for name, value in kinds.reading(opened.task).items())
    trained = f"Read: {read}. Trained on {found['rows']['train']:,} rows, {found['parameters']:,} parameters."
    if cut := found.get("cut_off", {}):
        trained += f" Longer than a model's input, and cut off: {sum(cut.values()):,} texts."
    stops = [
        Stop(
            title="Scores of the best model",
            meaning=f"The parameters after update {found['best']['step']:,} of {result.step:,}.",
            rows=rows,
            figures=pictures,
            caveat=trained,
        )
    ]
    for name, stem in stems.items():
        file = f"{PREDICTIONS}/{stem}_errors.jsonl"
        if errors := list(_errors(workdir / file)):
            stops.append(
                Stop(
                    title=f"The worst errors on {name}",
                    meaning="What the model was surest of, and wrong.",
                    rows=errors[:SHOWN],
                    figures={},
                    caveat=f"{min(len(errors), SHOWN)} of the {len(errors)} in {file}.",
                )
            )
    title = f"FOLNet fine-tuned: {', '.join(opened.task.classes) or opened.task.name}"
    return page.write(workdir / PAGE, stops, title=title, introduction=opened.task.looked_for("train"))


def _errors(path: Path) -> Iterator[Mapping[str, str]]:
    """Yields the rows of a file of errors with all values as text; none if there is no such file."""
    lines: list[dict[str, Any]] = []
    if path.exists():
        # Not `splitlines`: texts are written as they are, and may have other line separators.
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    columns = dict.fromkeys(name for line in lines for name in line)
    for line in lines:
        yield {name: _text(line.get(name, "")) for name in columns}


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
