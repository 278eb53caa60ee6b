"""Large blocks of memory are kept where the C library can do so, once, and nothing happens elsewhere."""

import ctypes
import subprocess
import sys
import types

import jax
import pytest

from experiments.exporting import run_exported
from experiments.runtime import memory

FAULTS = """
import resource, runpy, sys
print(runpy.run_path(sys.argv[1])["keep_large_blocks"](int(sys.argv[2])))
import jax
import jax.numpy as jnp
@jax.jit
def program(x):
    square = jnp.sin(x[:, None] + x[None])
    return square @ square[:, 0]
x = jnp.arange(4608.0)
for call in range(12):  # the heap grows until the array has a place of its own
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    jax.block_until_ready(program(x))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.fixture
def library(monkeypatch):
    """Replaces the C library."""
    found = types.SimpleNamespace()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: found)
    return found


@pytest.fixture
def asked(library, monkeypatch):
    """Returns the list of what the C library and JAX are asked."""
    calls = []
    monkeypatch.setattr(jax.config, "update", lambda name, value: calls.append((name, value)))
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
    assert asked == [("jax_cpu_enable_async_dispatch", False), (-3, 100 * 2**20), (-1, 100 * 2**20)]
    assert run_exported.keep_large_blocks(100)
    assert asked[3:] == asked[:3]


def test_it_can_be_switched_off(asked, library, monkeypatch):
    """By the limit, by the user's own settings, on accelerators and on systems with other libraries."""
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
        with monkeypatch.context() as patch:
            patch.setattr(jax, "default_backend", lambda: "gpu")
            assert not function(5)
        asked.clear()
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
    """An array of 81 MiB has 20,736 pages of 4 KiB, or 40 of 2 MiB; heaps of threads have room for 64."""
    faults = {}
    for limit in (0, 512):
        command = [sys.executable, "-c", FAULTS, memory.__file__, str(limit)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        accepted, count = done.stdout.split()
        assert accepted == str(limit > 0)
        faults[limit] = int(count)
    assert faults[0] >= 40
    assert faults[512] <= 4
