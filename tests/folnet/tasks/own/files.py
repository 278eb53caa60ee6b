"""Small files of your own data."""

import json
from pathlib import Path
from typing import Any

from folnet.tasks import own


def lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def opened(folder: Path, train: str, dev: str = "", name: str = "train.jsonl", **options: Any) -> Any:
    """Writes the two files and opens the task; by default the second is as the first."""
    files = {"train": folder / name, "validation": folder / f"dev{Path(name).suffix}"}
    for path, text in zip(files.values(), (train, dev or train), strict=True):
        path.write_text(text, encoding="utf-8")
    return own.open_own(files, **options)


def read_all(*arguments: Any, **options: Any) -> None:
    """Opens the task, and reads all splits."""
    task = opened(*arguments, **options)
    for split in task.splits:
        task.examples(".", split)
