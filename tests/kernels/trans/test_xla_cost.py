"""What the compiled path in plain JAX costs, by the compiler's own account."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kernels.trans import xla
from kernels.trans.reference import Config


def test_tiles_are_the_triangle():
    """Eight tiles at 1024 tokens do 9/16 of the products, the last row of each seeing all that it may."""
    kernel_logits = jax.ShapeDtypeStruct((1, 1, 1024, 1024), jnp.float32)
    tiles = xla.row_tiles(Config(causal=True), kernel_logits, None)
    assert [stop - start for start, stop, _ in tiles] == [128] * 8
    assert sum((stop - start) * end for start, stop, end in tiles) == 1024**2 * 9 // 16
    forward = jax.jit(lambda *arrays: xla.forward(Config(causal=True), *arrays, None)[0])
    cost: Any = forward.lower(kernel_logits, kernel_logits).compile().cost_analysis()
    assert cost["flops"] < 0.65 * 2 * 1024**3


def test_nothing_but_inputs_and_outputs_is_kept():
    """Forward to backward: no softmax. Its temporaries are one array of the kernel's size a direction."""
    size = jax.ShapeDtypeStruct((2, 8, 128, 128), jnp.float32)
    number = 4 * np.prod(size.shape)

    def temporary(function, *arguments):
        memory: Any = jax.jit(function).lower(*arguments).compile().memory_analysis()
        return memory.temp_size_in_bytes

    lse = jax.ShapeDtypeStruct(size.shape[:3], jnp.float32)
    assert temporary(lambda k, p: xla.forward(Config(), k, p, None), size, size) < 2.1 * number
    assert (
        temporary(lambda *a: xla.backward(Config(), a[0], a[1], None, *a[2:]), size, size, size, lse, size)
        < 2.1 * number
    )
