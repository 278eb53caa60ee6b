"""The functions on PyTorch tensors: values and gradients of JAX, and errors. Skipped without PyTorch."""

import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kernels
from kernels import pytorch

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def arrays(*shapes):
    draw = np.random.default_rng(0).normal
    return [draw(size=shape).astype(np.float32) for shape in shapes]


KEYS = [(1, 5, 2, 4)] * 5
CASES = {
    "trilinear_attention": (arrays(*KEYS), {"window1": 2, "window2": 3, "causal": True}),
    "strassen_attention": (arrays(*KEYS), {"mask": np.tri(5, dtype=bool)}),
    "two_simplicial_attention": (
        arrays(*[(1, 3, 1, 6)] * 4, (1, 6, 6, 6)),
        {"logit": "signed", "scale": 0.5},
    ),
    "trans": (arrays((1, 2, 3, 3), (1, 2, 3, 3)), {"causal": True}),
    "triangle_attention": (
        arrays(*[(1, 3, 2, 3, 4)] * 3, (1, 1, 2, 3, 3)),
        {"mask": np.tri(3, dtype=bool)[None, :, None, None], "scale": 0.7},
    ),
    "triangle_multiplicative_update": (
        arrays((2, 2, 4)),
        dict(
            zip(
                ("p_in_weight", "g_in_weight", "p_out_weight", "g_out_weight"),
                arrays((8, 4), (8, 4), (4, 4), (4, 4)),
                strict=True,
            )
        ),
    ),
}


def test_every_function_has_a_case():
    assert sorted(CASES) == sorted(pytorch.__all__)
    functions = {name for name in kernels.__all__ if name.islower()}
    # For JAX programs: a ring inside `shard_map`, a proof of what they call, a softmax that they have.
    assert functions - set(CASES) == {"masked_softmax", "prove", "trans_sharded"}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_jax(name):
    torch = pytest.importorskip("torch")
    inputs, options = CASES[name]

    @jax.jit
    def wanted(inputs):
        def total(inputs):
            out = getattr(kernels, name)(*inputs, **options)
            out = out[0] if isinstance(out, tuple) else out
            return jnp.sum(jnp.sin(out)), out

        (_, out), gradients = jax.value_and_grad(total, has_aux=True)(inputs)
        return out, gradients

    tensors = [torch.from_numpy(x.copy()).requires_grad_() for x in inputs]
    own = {key: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for key, x in options.items()}
    out = getattr(pytorch, name)(*tensors, **own)
    torch.sin(out).sum().backward()
    out_wanted, gradients = wanted(inputs)
    np.testing.assert_allclose(out.detach().numpy(), out_wanted, rtol=1e-5, atol=1e-6)
    for tensor, gradient in zip(tensors, gradients, strict=True):
        np.testing.assert_allclose(tensor.grad.numpy(), gradient, rtol=1e-4, atol=1e-5)


def test_only_what_requires_a_gradient_has_one():
    torch = pytest.importorskip("torch")
    tensors = [torch.from_numpy(x).requires_grad_(n == 1) for n, x in enumerate(arrays(*KEYS))]
    out = pytorch.trilinear_attention(*(x.transpose(0, 1).contiguous().transpose(0, 1) for x in tensors))
    out.sum().backward()
    assert [x.grad is not None for x in tensors] == [False, True, False, False, False]
    assert not pytorch.trilinear_attention(*(x.detach() for x in tensors)).requires_grad


def test_other_dtypes_and_all_outputs():
    torch = pytest.importorskip("torch")
    q, k, v, bias = (torch.from_numpy(x).bfloat16() for x in CASES["triangle_attention"][0])
    out, lse, top = pytorch.triangle_attention(q, k, v, bias, return_aux=True)
    assert (out.dtype, lse.dtype, top.shape) == (torch.bfloat16, torch.float32, (1, 3, 2, 3, 1))
    with pytest.raises(ValueError, match="tensor: got float64, expected float32 or less"):
        pytorch.trans(torch.ones(1, 2, 2).double(), torch.ones(1, 2, 2).double())


def test_programs_are_compiled_once():
    torch = pytest.importorskip("torch")
    pytorch._forward.cache_clear()
    for causal in (True, False, True):
        pytorch.trans(torch.ones(1, 2, 2), torch.ones(1, 2, 2), causal=causal)
    info = pytorch._forward.cache_info()
    assert (info.misses, info.hits) == (2, 1)


def test_errors():
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="trans: got no tensor, expected PyTorch tensors on one device"):
        pytorch.trans(1.0, 2.0)
    with pytest.raises(ValueError, match=re.escape("premise: got shape (1, 3, 2)")):
        pytorch.trans(torch.ones(1, 2, 2), torch.ones(1, 3, 2))


def test_pytorch_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    pytorch._torch.cache_clear()
    with pytest.raises(ImportError, match=r"torch: not installed, .*: pip install torch"):
        pytorch.trans(np.ones((1, 2, 2)), np.ones((1, 2, 2)))
    pytorch._torch.cache_clear()
