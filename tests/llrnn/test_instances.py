"""Every named cell equals the LLRNN cell of a proof: values and gradients for all parameters, in float64.

The parameters are those of the named cell; `mapped` converts them to those of the general cell. test_cells
and test_memory compare the named cells with NumPy, so that each equality here compares the logic with those
equations too.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from tests.llrnn.instances import (
    FEATURES,
    GENERIC,
    HORNER,
    INPUTS,
    dihedral,
    elman,
    higher_order,
    multiple_pattern,
    multiplicative,
    ntm,
    operator_memory,
    pattern,
    polynomial_step,
    second_order,
)


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


CASES = {
    "second order": lambda: second_order("draft"),
    "second order, later": lambda: second_order("later"),
    "second order, linear": lambda: second_order("linear"),
    "elman": elman,
    "multiplicative": multiplicative,
    "higher order": lambda: higher_order("predicted", "draft", HORNER),
    "higher order, generic span": lambda: higher_order("predicted", "draft", GENERIC),
    "higher order, given": lambda: higher_order("given", "draft", HORNER),
    "higher order, later": lambda: higher_order("predicted", "later", GENERIC),
    "ntm": lambda: ntm("updated"),
    "ntm, previous memory": lambda: ntm("previous"),
    "dihedral": dihedral,
    "operators": lambda: operator_memory("controller"),
    "operators, powers": lambda: operator_memory("input"),
    "pattern": lambda: pattern("updated"),
    "pattern, previous memory": lambda: pattern("previous"),
    "multiple pattern": multiple_pattern,
    "polynomial step": polynomial_step,
}


LONG = (
    "multiple pattern", "ntm, previous memory", "operators", "operators, powers", "pattern",
    "pattern, previous memory", "polynomial step",
)  # fmt: skip
"""These take half of the time; `make test-slow` runs them too."""


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow) if case in LONG else case for case in CASES]
)
def test_named_cell_is_the_cell_of_its_proof(case):
    named, general, mapped = CASES[case]()
    general = general.copy(param_dtype=jnp.float64)
    given = 4 if case == "higher order, given" else 0
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, given + INPUTS))
    shapes = jax.eval_shape(nn.RNN(named).init, jax.random.key(0), x)["params"]["cell"]
    params = jax.tree.map(lambda leaf: 0.6 * rng.normal(size=leaf.shape), shapes)
    # The mapping gives the general cell exactly the parameters that it asks for.
    theirs = jax.eval_shape(nn.RNN(general).init, jax.random.key(0), x)["params"]["cell"]
    assert jax.tree.map(jnp.shape, mapped(params)) == jax.tree.map(jnp.shape, theirs)
    weights = rng.normal(size=(2, 3, FEATURES))

    def run(cell, params):
        output: Any = nn.RNN(cell).apply({"params": {"cell": params}}, x)
        return (output * weights).sum(), output

    def both_cells(params):
        ours = jax.value_and_grad(lambda p: run(named, p), has_aux=True)(params)
        return ours, jax.value_and_grad(lambda p: run(general, mapped(p)), has_aux=True)(params)

    ours, theirs = jax.jit(both_cells, compiler_options={"xla_backend_optimization_level": 0})(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9), ours, theirs)
    (_, output), grads = ours
    assert np.abs(output).max() > 0.1
    dead = [name for name, leaf in jax.tree_util.tree_leaves_with_path(grads) if not np.abs(leaf).max() > 0]
    assert not dead  # every parameter took part in the comparison
