"""Timing of compiled functions against each other in one run."""

import datetime
import statistics
import time
from collections.abc import Callable, Mapping
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
    then the chip's, not that of starting them.

    Args:
        functions: by name; each is called once before, so that compilation is not counted.
        blocks: how many blocks of each.
        block_seconds: about how long a block is.
        uncounted: calls at the start of each block that are not timed; where functions take gigabytes the
            first one pays for memory that another gave back.

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


def ratio(slow: list[float], fast: list[float]) -> dict[str, float]:
    """How many times faster: the median over neighbouring blocks, with the least and the greatest."""
    ratios = [s / f for s, f in zip(slow, fast, strict=True)]
    return {"median": statistics.median(ratios), "least": min(ratios), "greatest": max(ratios)}


def where_and_when() -> dict[str, Any]:
    """Hardware, versions, commit and date, for the record of a measurement."""
    from experiments.runtime.workdir import surroundings  # here, since it needs more than JAX

    return {"date": datetime.datetime.now(datetime.UTC).date().isoformat(), **surroundings()}
