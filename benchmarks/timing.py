"""What measurements have in common: ratios of times, where and when they were taken, errors in one line."""

import contextlib
import datetime
import fcntl
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import kernels.timing

TURNS = "LOGIC_ZOO_TURNS"
"""The environment variable with the name of a file by which processes take turns; see `turn`."""


@contextlib.contextmanager
def turn(*, alone: bool) -> Iterator[None]:
    """Waits until no other process is in a turn (`alone`), or until none is in one alone.

    That holds between processes with the same file in `$LOGIC_ZOO_TURNS`; without one, nothing is waited for.
    """
    if not (name := os.environ.get(TURNS)):
        yield
        return
    with open(name, "a", encoding="utf-8") as file:  # closing it ends the turn
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def alternate(functions: Mapping[str, Callable[[], Any]], **options: Any) -> dict[str, list[float]]:
    """Does what `kernels.timing.alternate` does in a turn alone."""
    with turn(alone=True):
        return kernels.timing.alternate(functions, **options)


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Returns the median of blocks, the least, the greatest, and all of them as `blocks`."""
    ends = {"median": statistics.median(values), "least": min(values), "greatest": max(values)}
    return {**ends, "blocks": list(values)}


def ratio(slow: Sequence[float], fast: Sequence[float]) -> dict[str, Any]:
    """Returns the spread of the ratios slow / fast over neighbouring blocks."""
    return spread([s / f for s, f in zip(slow, fast, strict=True)])


def shown(over: Mapping[str, Any], digits: int = 2) -> str:
    """Formats a spread as "median (least to greatest)"."""
    median, least, greatest = (f"{over[name]:.{digits}f}" for name in ("median", "least", "greatest"))
    return f"{median} ({least} to {greatest})"


def where_and_when() -> dict[str, Any]:
    """Returns hardware, versions, commit and date for the record of a measurement."""
    from experiments.runtime.workdir import surroundings  # imported here because it needs more than JAX

    return {"date": datetime.datetime.now(datetime.UTC).date().isoformat(), **surroundings()}


def one_line(error: BaseException) -> str:
    """Formats an error as its type and first line, to be recorded as a result."""
    return f"{type(error).__name__}: {(str(error).strip() or '-').splitlines()[0][:200]}"
