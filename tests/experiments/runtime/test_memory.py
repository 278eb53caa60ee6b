"""Large blocks of memory are kept where the C library can do so, once, and nothing happens elsewhere."""

import ctypes
import subprocess
import sys
import types

import pytest

from experiments.exporting import run_exported
from experiments.runtime import memory

FAULTS = """
import ctypes, resource, runpy, sys, threading
print(runpy.run_path(sys.argv[1])["keep_large_blocks"](int(sys.argv[2])))
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
ctypes.memset.argtypes = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
def calls():
    for call in range(4):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        block = libc.malloc(80 * 2**20)
        ctypes.memset(block, 1, 80 * 2**20)
        libc.free(block)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
thread = threading.Thread(target=calls)
thread.start()
thread.join()
"""


@pytest.fixture
def library(monkeypatch):
    """Replaces the C library."""
    found = types.SimpleNamespace()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: found)
    return found


@pytest.fixture
def asked(library, monkeypatch):
    """Returns the list of what the C library is asked."""
    calls = []
    library.mallopt = lambda name, value: calls.append((name, value)) or 1
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    memory.keep_large_blocks.cache_clear()
    yield calls
    memory.keep_large_blocks.cache_clear()


linux = pytest.mark.skipif(not memory._has_glibc(), reason="needs the GNU C library")


@linux
def test_it_is_asked_once(asked):
    assert memory.keep_large_blocks(100)
    assert memory.keep_large_blocks(100)
    assert asked == [(-3, 100 * 2**20), (-1, 100 * 2**20), (-8, 1)]
    assert run_exported.keep_large_blocks(100)
    assert asked[3:] == asked[:3]


def test_it_can_be_switched_off(asked, library, monkeypatch):
    """By the limit, by the user's own settings, and on systems with other libraries."""
    for function in (memory.keep_large_blocks.__wrapped__, run_exported.keep_large_blocks):
        assert not function(0)
        for name, value in (("MALLOC_TRIM_THRESHOLD_", "1"), ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")):
            with monkeypatch.context() as patch:
                patch.setenv(name, value)
                assert not function(5)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "platform", "darwin")
            assert not function(5)
    assert asked == []
    monkeypatch.setattr("os.confstr", lambda name: None)
    assert not memory.keep_large_blocks(5)
    assert asked == []
    del library.mallopt
    assert not run_exported.keep_large_blocks(5)


@pytest.mark.parametrize("limit", [-1, 2048, 1.5, True])
def test_other_limits_are_refused(asked, limit):
    with pytest.raises(ValueError, match=r"limit: got .*, expected an integer from 0 to 2047, in MiB"):
        memory.keep_large_blocks.__wrapped__(limit)
    assert asked == []


@linux
def test_blocks_keep_their_pages():
    """A block of 80 MiB has 20,480 pages of 4 KiB, or 40 of 2 MiB; a thread's own heap has no room for it."""
    faults = {}
    for limit in (0, 128):
        command = [sys.executable, "-c", FAULTS, memory.__file__, str(limit)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        accepted, count = done.stdout.split()
        assert accepted == str(limit > 0)
        faults[limit] = int(count)
    assert faults[0] >= 40
    assert faults[128] <= 4
