"""Keeps large blocks of memory in the process between calls of compiled programs.

XLA on CPUs allocates the temporary arrays of a call and frees them at its end. The GNU C library gets blocks
beyond 32 MiB from the system and returns them when they are freed, so that every call pays for fresh pages: a
quarter of the time of some gradients.
"""

import ctypes
import functools
import os
import sys

import jax

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
MOST = 2047
"""The largest limit in MiB: the C function takes an int."""
DEFAULT = 1024


@functools.cache
def keep_large_blocks(limit: int = DEFAULT) -> bool:
    """Asks the C library to keep freed blocks of up to `limit` MiB; calls with the same limit ask once.

    Call it before JAX's first computation: XLA for CPUs then allocates and computes in the thread that calls
    a program on one device, instead of in its own threads (`jax_cpu_enable_async_dispatch`). The process
    then keeps at most `limit` MiB of free memory at the end of its heap, in addition to gaps between blocks
    in use. Larger blocks are returned to the system as before, and so are those beyond 64 MiB of programs on
    several devices. Nothing is asked if `limit` is 0, if the C library is another one, or if the environment
    sets its thresholds; on accelerators the C library is not asked.

    Returns:
        Whether the library has accepted.

    Raises:
        ValueError: `limit` is not an integer from 0 to `MOST`.
    """
    if not isinstance(limit, int) or isinstance(limit, bool) or not 0 <= limit <= MOST:
        raise ValueError(f"limit: got {limit!r}, expected an integer from 0 to {MOST}, in MiB")
    chosen = {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX"} & set(os.environ)
    if limit == 0 or chosen or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "") or not _has_glibc():
        return False
    # The heap of any thread but the first has room for 64 MiB; larger blocks come from the system, whatever
    # the thresholds are. With one heap for all threads (M_ARENA_MAX) they would wait for each other: the
    # gradients of the paper's agents took 1.1 to 1.3 times as long.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if jax.default_backend() != "cpu":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    # Not M_TOP_PAD: with it the heap grew by half as much again before calls stopped asking for pages.
    settings = {M_MMAP_THRESHOLD: limit * 2**20, M_TRIM_THRESHOLD: limit * 2**20}
    return all(mallopt(name, value) == 1 for name, value in settings.items())


def _has_glibc() -> bool:
    if sys.platform != "linux":
        return False
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (ValueError, OSError):  # of musl, for example
        return False
