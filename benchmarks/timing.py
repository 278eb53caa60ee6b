"""Timing of compiled functions against each other in one run."""

import datetime
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax


def alternate(
    functions: Mapping[str, Callable[[], Any]],
    *,
    blocks: int = 7,
    block_seconds: float = 0.25,
    uncounted: int = 0,
) -> dict[str, list[float]]:
    """Seconds a call of each function, in blocks that take turns, so that a slow moment hits all alike.

    On an accelerator the calls of a block are queued and waited for together: the time between two calls is
    then the chip's, not that of starting them. Each function is called once before, so that compilation is
    not counted; so are `uncounted` calls at the start of each block: where functions take gigabytes the first
    one pays for memory that another gave back.

    Returns:
        For each name the mean seconds a call in each block.
    """
    one_by_one = jax.default_backend() == "cpu"  # where queued calls would share the cores

    def seconds(function: Callable[[], Any], count: int) -> float:
        start = time.perf_counter()
        result = None
        for _ in range(count):
            result = function()
            if one_by_one:
                jax.block_until_ready(result)
        jax.block_until_ready(result)
        return (time.perf_counter() - start) / count

    calls = {}
    for name, function in functions.items():
        seconds(function, 1)
        calls[name] = max(1, round(block_seconds / max(seconds(function, 1), 1e-6)))
        if not one_by_one:  # a single call is mostly the wait for it: ask again with several
            calls[name] = max(1, round(block_seconds / max(seconds(function, min(calls[name], 20)), 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(blocks):
        for name, function in functions.items():
            for _ in range(uncounted):
                jax.block_until_ready(function())
            times[name].append(seconds(function, calls[name]))
    return times


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Returns the median of blocks, the least, the greatest, and all of them as `blocks`."""
    ends = {"median": statistics.median(values), "least": min(values), "greatest": max(values)}
    return {**ends, "blocks": list(values)}


def ratio(slow: Sequence[float], fast: Sequence[float]) -> dict[str, Any]:
    """How many times faster, over neighbouring blocks."""
    return spread([s / f for s, f in zip(slow, fast, strict=True)])


def shown(over: Mapping[str, Any], digits: int = 2) -> str:
    """A spread in words."""
    median, least, greatest = (f"{over[name]:.{digits}f}" for name in ("median", "least", "greatest"))
    return f"{median} ({least} to {greatest})"


def where_and_when() -> dict[str, Any]:
    """Hardware, versions, commit and date, for the record of a measurement."""
    from experiments.runtime.workdir import surroundings  # here, since it needs more than JAX

    return {"date": datetime.datetime.now(datetime.UTC).date().isoformat(), **surroundings()}


def one_line(error: BaseException) -> str:
    """An error's type and first line: out of memory and unsupported are findings too."""
    return f"{type(error).__name__}: {(str(error).strip() or '-').splitlines()[0][:200]}"
