"""What buffers take of shared memory."""

import jax.numpy as jnp
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu

from kernels import hopper


def test_buffers_are_aligned_unions_take_their_largest_and_barriers_a_word_each():
    small, large = plgpu.SMEM((3, 5), jnp.bfloat16), plgpu.SMEM((300,), jnp.float32)
    assert hopper.shared_bytes([small]) == 1024
    assert hopper.shared_bytes({"a": small, "b": large}) == 1024 + 2048
    assert hopper.shared_bytes(plgpu.RefUnion([small, small, small], large)) == 3 * 1024
    assert hopper.shared_bytes(plgpu.RefUnion(small, large)) == 2048
    assert hopper.shared_bytes([plgpu.Barrier(num_barriers=3), small]) == 24 + 1024


def test_a_swizzle_cuts_all_sizes_evenly():
    assert hopper.widest(jnp.bfloat16, 64, 128) == 128
    assert hopper.widest(jnp.bfloat16, 64, 96) == 64
    assert hopper.widest(jnp.float32, 8) == 32


@pytest.mark.parametrize("version", ["0.11", "0.12"])
def test_numbers_are_stored_in_global_memory_by_either_version_of_jax(version, monkeypatch):
    stored = []
    if version == "0.12":
        monkeypatch.setattr(
            plgpu, "store", lambda target, value, optimized: stored.append((value, optimized)), raising=False
        )
    else:
        monkeypatch.delattr(plgpu, "store", raising=False)

    class Target:
        def __setitem__(self, index, value):
            assert index is ...
            stored.append((value, False))

    hopper.store_global(Target(), jnp.ones(2))
    [(value, optimized)] = stored
    assert not optimized
    assert value.shape == (2,)
