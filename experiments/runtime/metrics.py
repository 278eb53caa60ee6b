"""The metrics of a run: `metrics.jsonl`, one JSON object per line."""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.runtime import processes
from experiments.runtime.logs import Log
from logic_zoo.writing import whole


def read(path: Path) -> list[dict[str, Any]]:
    """Reads the complete lines of a metrics file as dicts; returns an empty list if there is no file.

    An incomplete last line, left by a kill, is ignored. Numbers that were not finite are None.

    Raises:
        ValueError: if a complete line is not a JSON object with a `step`; the message has file and line.
    """
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines[:-1], 1):  # after the last newline: nothing, or an incomplete line
        try:
            record = json.loads(line)
            if not isinstance(record["step"], int):
                raise TypeError("step is not an integer")
        except (ValueError, KeyError, TypeError) as error:
            shown = line[:80].decode("utf-8", "replace")
            raise ValueError(
                f"{path}: got {shown!r} in line {number}, expected a JSON object with a step"
            ) from error
        records.append(record)
    return records


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Converts metrics for JSON: scalars to int or float, non-finite ones to None (JSON has no NaN).

    Raises:
        ValueError: with the name of a metric that is not a scalar.
    """
    result = {}
    for name, value in values.items():
        try:
            number = value if isinstance(value, int) else float(value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"metric {name!r}: got {value!r}, expected a scalar") from error
        result[name] = number if math.isfinite(number) else None
    return result


class MetricsWriter:
    """Appends to `metrics.jsonl`; a continued run's file is the same as an uninterrupted one's.

    With several processes, only the first writes.
    """

    def __init__(self, workdir: Path, step: int, *, logs: Callable[[], Sequence[Log]] = tuple):
        """Opens the file and drops the lines after `step`, the checkpoint from which the run continues.

        `logs` opens others that get the same numbers; it is called by the process that writes.
        """
        path = workdir / "metrics.jsonl"
        self._file = None
        self._logs: Sequence[Log] = ()
        kept = [record for record in read(path) if record["step"] <= step]
        self.last = kept[-1] if kept else None
        if not processes.is_first():
            return
        self._logs = logs()  # first: one that cannot be opened leaves no file open
        with whole(path) as temporary:
            temporary.write_text("".join(json.dumps(record) + "\n" for record in kept), encoding="utf-8")
        self._file = path.open("a", encoding="utf-8")

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Appends one line with the metrics of a step.

        Raises:
            ValueError: if the step is not greater than the last line's, or a value is not a number.
        """
        if self.last is not None and step <= self.last["step"]:
            raise ValueError(f"step: got {step}, expected more than {self.last['step']}, the last line's")
        self.last = {"step": step, **plain(values)}
        if self._file is not None:
            self._file.write(json.dumps(self.last, allow_nan=False) + "\n")
            self._file.flush()
        finite = {name: value for name, value in self.last.items() if name != "step" and value is not None}
        for log in self._logs:
            log.write(step, finite)

    def sync(self) -> None:
        """Flushes all lines to disk, so that they survive a crash of the machine."""
        if self._file is not None:
            os.fsync(self._file.fileno())
        for log in self._logs:
            log.flush()

    def close(self) -> None:
        for opened in (self._file, *self._logs):
            if opened is not None:
                opened.close()
