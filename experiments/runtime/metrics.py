"""The record of a run: `metrics.jsonl`, one JSON object a line, and TensorBoard's events on request."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.runtime import processes
from experiments.runtime.workdir import whole


def read(path: Path) -> list[dict[str, Any]]:
    """Reads the complete lines of a metrics file, a dict each; an absent file has none.

    A last line cut short by a kill is left out. Numbers that were not finite are None.

    Raises:
        ValueError: a line before the last is not a JSON object with a `step`; the file and line are named.
    """
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines[:-1], 1):  # what follows the last newline is nothing, or half a line
        try:
            record = json.loads(line)
            if not isinstance(record["step"], int):
                raise TypeError("step is not a whole number")
        except (ValueError, KeyError, TypeError) as error:
            shown = line[:80].decode("utf-8", "replace")
            raise ValueError(
                f"line {number} of {path} is not a JSON object with a step: {shown!r}"
            ) from error
        records.append(record)
    return records


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns metrics as JSON has them: scalars as int or float, not-finite ones as None (JSON has no NaN).

    Raises:
        ValueError: naming the metric that is not a single number.
    """
    result = {}
    for name, value in values.items():
        try:
            number = value if isinstance(value, int) else float(value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"metric {name!r} must be a single number, got {value!r}") from error
        result[name] = number if math.isfinite(number) else None
    return result


class MetricsWriter:
    """Appends to `metrics.jsonl` so that a continued run's record reads as if it had never stopped.

    Of several processes only the first writes.
    """

    def __init__(self, workdir: Path, step: int, *, tensorboard: bool = False):
        """Opens the record and drops what was written after `step`, the checkpoint the run continues from.

        Raises:
            ValueError: TensorBoard is asked for and tensorboardX is not installed.
        """
        path = workdir / "metrics.jsonl"
        self._board = self._file = None
        kept = [record for record in read(path) if record["step"] <= step]
        self.last = kept[-1] if kept else None
        if not processes.is_first():
            return
        if tensorboard:
            try:
                from tensorboardX import SummaryWriter
            except ImportError as error:
                raise ValueError(
                    "tensorboard=True needs tensorboardX: pip install -e '.[tensorboard]'"
                ) from error
            self._board = SummaryWriter(str(workdir / "tensorboard"), purge_step=step + 1)
        with whole(path) as temporary:
            temporary.write_text("".join(json.dumps(record) + "\n" for record in kept), encoding="utf-8")
        self._file = path.open("a", encoding="utf-8")

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Appends a line.

        Raises:
            ValueError: the step does not come after the last line's, or a value is not a number.
        """
        if self.last is not None and step <= self.last["step"]:
            raise ValueError(f"step={step} must come after the last line's, {self.last['step']}")
        self.last = {"step": step, **plain(values)}
        if self._file is not None:
            self._file.write(json.dumps(self.last, allow_nan=False) + "\n")
            self._file.flush()
        if self._board is not None:
            for name, value in self.last.items():
                if name != "step" and value is not None:
                    self._board.add_scalar(name, value, step)

    def sync(self) -> None:
        """Makes the lines so far outlive a crash of the machine; a checkpoint presumes them."""
        if self._file is not None:
            os.fsync(self._file.fileno())
        if self._board is not None:
            self._board.flush()

    def close(self) -> None:
        """Closes the files."""
        for opened in (self._file, self._board):
            if opened is not None:
                opened.close()
