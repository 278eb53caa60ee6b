"""Products in full precision, also on chips whose default is less; 16-bit numbers are summed in float32.

On a CPU every product is exact, so no value shows this: the traced programs do.
"""

import functools

import jax
import jax.numpy as jnp
import pytest

from kernels.trans import reference as trans_reference
from kernels.trans import tpu as trans_tpu
from kernels.trans import xla as trans_xla
from kernels.trilinear import reference as trilinear_reference
from kernels.trilinear import tpu as trilinear_tpu
from kernels.trilinear import xla as trilinear_xla
from kernels.two_simplicial import gpu as two_gpu
from kernels.two_simplicial import reference as two_reference
from kernels.two_simplicial import tpu as two_tpu
from kernels.two_simplicial import xla as two_xla

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

    def visit(jaxpr):
        for equation in jaxpr.eqns:
            if equation.primitive.name == "dot_general":
                dtypes = [v.aval.dtype for v in (*equation.invars, *equation.outvars)]
                found.append((*dtypes, equation.params["precision"]))
            for inner in jax.tree.leaves(
                list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")
            ):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    visit(inner)

    visit(jax.make_jaxpr(function)(*arrays).jaxpr)
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
