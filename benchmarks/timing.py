"""Timing of compiled functions against each other in one run."""

import datetime
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

from experiments.runtime.workdir import surroundings


def alternate(
    functions: Mapping[str, Callable[[], Any]], *, blocks: int = 7, block_seconds: float = 0.25
) -> dict[str, list[float]]:
    """Seconds a call of each function, in blocks that take turns, so that a slow moment hits all alike.

    Args:
        functions: by name; each is called once before, so that compilation is not counted.
        blocks: how many blocks of each.
        block_seconds: about how long a block is.

    Returns:
        For each name the mean seconds a call in each block.
    """
    calls = {}
    for name, function in functions.items():
        jax.block_until_ready(function())
        start = time.perf_counter()
        jax.block_until_ready(function())
        calls[name] = max(1, round(block_seconds / (time.perf_counter() - start)))
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(blocks):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(calls[name]):
                jax.block_until_ready(function())
            times[name].append((time.perf_counter() - start) / calls[name])
    return times


def ratio(slow: list[float], fast: list[float]) -> dict[str, float]:
    """How many times faster: the median over neighbouring blocks, with the least and the greatest."""
    ratios = [s / f for s, f in zip(slow, fast, strict=True)]
    return {"median": statistics.median(ratios), "least": min(ratios), "greatest": max(ratios)}


def where_and_when() -> dict[str, Any]:
    """Hardware, versions, commit and date, for the record of a measurement."""
    return {"date": datetime.datetime.now(datetime.UTC).date().isoformat(), **surroundings()}
