"""The hand-written kernels through the public functions, interpreted: values and all gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels import trans, trilinear_attention, two_simplicial_attention


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


LONG = (("trilinear", "gpu_interpret"), ("two_simplicial", "gpu_interpret"), ("trilinear", "tpu_interpret"))


@pytest.mark.parametrize(
    ("name", "implementation", "dtype", "tolerance"),
    [
        pytest.param(name, *how, marks=pytest.mark.slow if (name, how[0]) in LONG else ())
        for name in CALLS
        for how in (("tpu_interpret", jnp.float32, 1e-5), ("gpu_interpret", jnp.bfloat16, 2e-2))
    ],
)
def test_by_name(name, implementation, dtype, tolerance):
    function, arrays = CALLS[name]

    def of(implementation, dtype):
        def loss(*x):
            return (function(*x, implementation=implementation).astype(jnp.float32) ** 2).sum()

        inputs = [x.astype(dtype) for x in arrays]
        return jax.jit(jax.value_and_grad(loss, tuple(range(len(inputs)))))(*inputs)

    got, want = (jax.tree.leaves(of(*how)) for how in ((implementation, dtype), ("reference", jnp.float32)))
    for g, w in zip(got, want, strict=True):
        assert jnp.linalg.norm(g.astype(jnp.float32) - w) <= tolerance * jnp.linalg.norm(w)
