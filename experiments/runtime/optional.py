"""What a run can do without: it trains, saves and records where nothing can be drawn."""

import functools
import importlib.util
import sys


@functools.cache
def can_draw() -> bool:
    """Whether Matplotlib is here; told once if it is not. The same command draws later, where it is."""
    if importlib.util.find_spec("matplotlib") is not None:
        return True
    print("no pictures are drawn: matplotlib is not installed", file=sys.stderr, flush=True)
    return False
