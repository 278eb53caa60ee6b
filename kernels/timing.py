"""Times compiled functions against each other in one process."""

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
    """Measures seconds per call in alternating blocks, so that a slow moment affects all functions equally.

    On an accelerator the calls of a block are queued before waiting for them, which excludes the time to
    launch a call. Each function is called before timing, which excludes compilation. `uncounted` calls at the
    start of each block are also excluded: for functions that use gigabytes, the first call reallocates memory
    that another one freed.

    Returns:
        The mean seconds per call in each block, by name.
    """
    one_by_one = jax.default_backend() == "cpu"  # queued calls would compete for the cores

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
        if not one_by_one:  # one call is dominated by synchronization: calibrate with several
            calls[name] = max(1, round(block_seconds / max(seconds(function, min(calls[name], 20)), 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(blocks):
        for name, function in functions.items():
            for _ in range(uncounted):
                jax.block_until_ready(function())
            times[name].append(seconds(function, calls[name]))
    return times
