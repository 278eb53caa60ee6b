"""Optional dependencies: runs train, save and record metrics without Matplotlib."""

import functools
import importlib.util
import sys


@functools.cache
def can_draw() -> bool:
    """Returns whether Matplotlib is installed; prints a note once if not.

    The same command draws the figures later, where Matplotlib is installed.
    """
    if importlib.util.find_spec("matplotlib") is not None:
        return True
    print("skipping figures: matplotlib is not installed", file=sys.stderr, flush=True)
    return False
