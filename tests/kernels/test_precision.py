"""Products in full precision, also on chips whose default is less; 16-bit numbers are summed in float32.

On a CPU every product is exact, so no value shows this: the traced programs do.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels import dispatch
from kernels.trans import api as trans_api
from kernels.trans import reference as trans_reference
from kernels.trans import tpu as trans_tpu
from kernels.trans import xla as trans_xla
from kernels.triangle.attention import by_rows
from kernels.trilinear import api as trilinear_api
from kernels.trilinear import reference as trilinear_reference
from kernels.trilinear import tpu as trilinear_tpu
from kernels.trilinear import xla as trilinear_xla
from kernels.two_simplicial import api as two_api
from kernels.two_simplicial import gpu as two_gpu
from kernels.two_simplicial import reference as two_reference
from kernels.two_simplicial import tpu as two_tpu
from kernels.two_simplicial import xla as two_xla
from tests import jaxprs
from tests.kernels.trans import cases as trans_cases
from tests.kernels.trilinear import cases as trilinear_cases
from tests.kernels.two_simplicial import cases as two_cases

SIZES = {
    "two_simplicial": [(2, 5, 2, 6), (2, 9, 2, 6), (2, 9, 2, 6), (2, 9, 2, 4), (2, 7, 4, 4)],
    "trans": [(2, 3, 7, 5), (2, 3, 5, 6)],
    "trilinear": [(1, 9, 4, 6), *[(1, 9, 2, 6)] * 4],
}
CONFIGS = {
    "two_simplicial": [two_reference.Config(logit) for logit in two_reference.LOGITS],
    "trans": [trans_reference.Config()],
    "trilinear": [trilinear_reference.Config(2, 4, causal=True)],
}
BACKENDS = {
    "two_simplicial": {"xla": two_xla, "tpu": two_tpu, "gpu": two_gpu},
    "trans": {"xla": trans_xla, "tpu": trans_tpu},
    "trilinear": {"xla": trilinear_xla, "tpu": trilinear_tpu},
}
REFERENCES = {
    "two_simplicial": two_reference.two_simplicial_attention,
    "trans": trans_reference.trans,
    "trilinear": trilinear_reference.trilinear_attention,
}


def products(function, *arrays):
    """Operands' dtypes, the result's and the precision of every product, those inside of kernels too."""
    found = []
    for equation in jaxprs.equations(jax.make_jaxpr(function)(*arrays).jaxpr):
        if equation.primitive.name == "dot_general":
            dtypes = [v.aval.dtype for v in (*equation.invars, *equation.outvars)]
            found.append((*dtypes, equation.params["precision"]))
    assert found
    return found


def both(backend, config, masks, *arrays):
    out, lse = backend.forward(config, *arrays, *masks)
    return out, lse, backend.backward(config, *arrays, *masks, out, lse, out)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("operation", "backend"), [(o, b) for o in BACKENDS for b in BACKENDS[o]])
def test_products(operation, backend, dtype):
    masks = () if operation == "trilinear" else (None,)
    arrays = [jax.ShapeDtypeStruct(size, dtype) for size in SIZES[operation]]
    for config in CONFIGS[operation]:
        function = functools.partial(both, BACKENDS[operation][backend], config, masks)
        for left, right, result, precision in products(function, *arrays):
            assert result == jnp.float32, (left, right, result)
            if jnp.float32 in (left, right) and dtype == jnp.float32:
                assert precision == (jax.lax.Precision.HIGHEST,) * 2


@pytest.mark.parametrize("operation", REFERENCES)
def test_products_of_the_definitions(operation):
    arrays = [jax.ShapeDtypeStruct(size, jnp.bfloat16) for size in SIZES[operation]]
    for config in CONFIGS[operation]:
        function = functools.partial(REFERENCES[operation], config)
        for *dtypes, precision in products(function, *arrays):
            assert set(dtypes) == {jnp.dtype(jnp.float32)}
            assert precision == (jax.lax.Precision.HIGHEST,) * 2


def test_products_of_triangle_attention_take_16_bits():
    sizes = [(1, 2, 1, 3, 4)] * 3, (1, 1, 1, 3, 3)
    arrays = [jax.ShapeDtypeStruct(size, jnp.bfloat16) for size in (*sizes[0], sizes[1])]
    for left, right, result, _ in products(lambda *x: by_rows(*x, mask=None, scale=1.0), *arrays):
        assert (left, right, result) == (jnp.bfloat16, jnp.bfloat16, jnp.float32)


# ---- gradients in 16 bits


def drawn(*sizes):
    rng = np.random.default_rng(0)
    return [rng.normal(size=size) for size in sizes]


TWO = drawn((1, 6, 1, 48), (1, 9, 1, 48), (1, 9, 1, 48), (1, 9, 1, 12), (1, 12, 12, 12))
PAIR = drawn((2, 6, 1, 24), (2, 2, 1, 24), (2, 2, 1, 24), (2, 2, 1, 12), (1, 12, 12, 12))
RELATIONS = drawn((1, 2, 24, 24), (1, 2, 24, 20))
GROUPED = drawn((1, 20, 2, 32), *[(1, 20, 1, 32)] * 4)
EXACT: dict[str, Any] = {
    "two_simplicial_attention": lambda *call: two_cases.expected(*call).gradients,
    "trans": lambda *call: list(trans_cases.answers(*call).values())[2:],
    "trilinear_attention": lambda *call: list(trilinear_cases.answers(*call).values())[2:],
}
"""Gradients in float64 of a config, arrays with masks, and a cotangent, by operation."""
GRADIENTS = {
    "unsigned": (two_api.OPERATION, two_reference.Config(), TWO, (None,)),
    "pairs": (two_api.OPERATION, two_reference.Config(scale=0.2), PAIR, (None,)),
    "trans": (trans_api.OPERATION, trans_reference.Config(), RELATIONS, (None,)),
    "trans, causal": (trans_api.OPERATION, trans_reference.Config(causal=True), [RELATIONS[0]] * 2, (None,)),
    "trilinear, causal": (
        trilinear_api.OPERATION,
        trilinear_reference.Config(4, 9, causal=True, scale=0.2),
        GROUPED,
        (),
    ),
}


DEVIATIONS = (0.5, 1.0, 2.0, 3.0)


@pytest.mark.usefixtures("compiled_quickly")
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_in_bfloat16_are_as_accurate_as_those_of_the_definition(name):
    """At most twice the error that autodiff of the definition has, for inputs of any deviation.

    This is the blockwise path. Interpreted kernels have such tests in each `test_gpu.py` and `test_tpu.py`.
    The definition computes in float32 and rounds its gradients. Where logits are in the thousands it is wrong
    itself, and what is compared is no more than that.
    """
    operation, config, given, masks = GRADIENTS[name]

    def definition(*x):
        return operation.reference(config, *x, *masks)[0]

    def call(*x):
        return dispatch.run(operation, config, *x, *masks, implementation="xla")

    def gradients(function):  # compiled once for all deviations
        return jax.jit(lambda cotangent, *x: jax.vjp(function, *x)[1](cotangent))

    functions = gradients(call), gradients(definition)
    shape = jax.eval_shape(definition, *map(jnp.asarray, given)).shape
    cotangent = jnp.asarray(np.random.default_rng(1).normal(size=shape), jnp.bfloat16)
    for deviation in DEVIATIONS:
        arrays = [jnp.asarray(deviation * x, jnp.bfloat16) for x in given]
        exact = EXACT[operation.name](config, (*arrays, *masks), cotangent)
        mine, plain = (
            [
                np.linalg.norm(np.asarray(x, np.float64) - y)
                for x, y in zip(function(cotangent, *arrays), exact, strict=True)
            ]
            for function in functions
        )
        for own, its, want in zip(mine, plain, exact, strict=True):
            assert own <= 2 * max(its, 1e-3 * np.linalg.norm(want)), (deviation, own, its)


@pytest.mark.parametrize(("implementation", "platform"), [("gpu", "cuda"), ("tpu", "tpu")])
@pytest.mark.parametrize("name", ["unsigned", "trans", "trilinear, causal"])
def test_kernels_of_at_most_32_bits_lower_where_numbers_may_have_64(name, implementation, platform):
    operation, config, given, masks = GRADIENTS[name]
    arrays = [jnp.asarray(x, jnp.bfloat16) for x in given]

    def gradients(*x):
        out, pullback = jax.vjp(
            lambda *x: dispatch.run(operation, config, *x, *masks, implementation=implementation), *x
        )
        return pullback(out)

    with jax.enable_x64(True):
        jax.jit(gradients).trace(*arrays).lower(lowering_platforms=(platform,))
