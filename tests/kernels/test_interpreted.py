"""The GPU kernels through the public functions, interpreted: values and all gradients.

Those of the TPU kernels are with their operations.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels import trans, trilinear_attention, two_simplicial_attention

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def draw(*shape, seed=0):
    # What both types can represent, so that the answer is the same.
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape) * 0.5, jnp.bfloat16)


KEY = draw(1, 9, 2, 12, seed=1)
GROUPED = [draw(1, 20, 1, 16, seed=seed) for seed in range(4)]
CALLS = {
    "two_simplicial": (
        two_simplicial_attention,
        (draw(1, 20, 2, 12), KEY, draw(1, 9, 2, 12, seed=2), draw(1, 9, 2, 8), draw(2, 8, 8, 8)),
    ),
    "trans": (trans, (draw(1, 2, 24, 24), draw(1, 2, 24, 24, seed=1))),
    "trilinear": (
        partial(trilinear_attention, causal=True, window1=3, window2=9),
        (draw(1, 20, 2, 16), *GROUPED),
    ),
}


@pytest.mark.parametrize(
    "name", [name if name == "trans" else pytest.param(name, marks=pytest.mark.slow) for name in CALLS]
)
def test_by_name(name):
    function, arrays = CALLS[name]

    def of(implementation, dtype):
        def loss(*x):
            return (function(*x, implementation=implementation).astype(jnp.float32) ** 2).sum()

        inputs = [x.astype(dtype) for x in arrays]
        return jax.jit(jax.value_and_grad(loss, tuple(range(len(inputs)))))(*inputs)

    ways = ("gpu_interpret", jnp.bfloat16), ("reference", jnp.float32)
    for g, w in zip(*(jax.tree.leaves(of(*how)) for how in ways), strict=True):
        assert jnp.linalg.norm(g.astype(jnp.float32) - w) <= 2e-2 * jnp.linalg.norm(w)
