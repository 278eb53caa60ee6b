"""Every named cell equals the LLRNN cell of a proof: values and gradients for all parameters, in float64.

The parameters are those of the named cell; `mapped` converts them to those of the general cell. test_cells
and test_memory compare the named cells with NumPy, so that each equality here compares the logic with those
equations too.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from llrnn import logic
from llrnn.memory import rings
from tests.llrnn.instances import (
    GENERIC,
    HORNER,
    INPUTS,
    LOCATIONS,
    WIDTH,
    V,
    W,
    elman,
    higher_order,
    multiplicative,
    second_order,
)
from tests.llrnn.memory_instances import (
    COPY,
    dihedral,
    erased,
    erasing_ntm,
    multiple_pattern,
    ntm,
    operator_memory,
    pattern,
    polynomial_step,
)
from tests.llrnn.tape_instances import stack

pytestmark = pytest.mark.usefixtures("compiled_quickly", "x64")

BATCH = 8  # so that no unit of a relu rests for every sequence
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


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
    "ntm that erases": erasing_ntm,
    "dihedral": dihedral,
    "operators": lambda: operator_memory("controller"),
    "operators, powers": lambda: operator_memory("input"),
    "pattern, previous memory": lambda: pattern("previous"),
    "pattern with a gate": lambda: pattern("updated", direct=True),
    "multiple pattern": multiple_pattern,
    "polynomial step": polynomial_step,
    "stack": stack,
}


def flat(state):
    """Returns a state as the general cell has it: the factors one after the other, matrices row by row."""
    return jnp.concatenate([leaf.reshape(BATCH, -1) for leaf in jax.tree.leaves(state)], axis=1)


def random_state(cell, rng):
    """Returns a state of the cell's shapes, with positive numbers for addresses, which may be sharpened."""
    start = cell.initialize_carry(jax.random.key(0), (BATCH, INPUTS))
    return start, jax.tree.map(lambda leaf: jnp.asarray(0.3 + rng.random(leaf.shape)), start)


SLOW = {"ntm that erases"}  # `test_erasing_is_a_proof` is the cheap witness


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow) if case in SLOW else case for case in CASES]
)
def test_named_cell_is_the_cell_of_its_proof(case):
    """One step from the same random state: the new state, and its gradients for the state and parameters."""
    named, general, mapped = CASES[case]()
    general = general.copy(param_dtype=jnp.float64)
    given = 4 if case == "higher order, given" else 0
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(BATCH, given + INPUTS)))
    start, state = random_state(named, rng)
    np.testing.assert_array_equal(flat(start), general.initialize_carry(jax.random.key(0), x.shape))
    shapes = jax.eval_shape(named.init, jax.random.key(0), state, x)["params"]
    params = jax.tree.map(lambda leaf: 0.6 * rng.normal(size=leaf.shape), shapes)
    # The mapping gives the general cell exactly the parameters that it asks for.
    theirs = jax.eval_shape(general.init, jax.random.key(0), flat(state), x)["params"]
    assert jax.tree.map(jnp.shape, mapped(params)) == jax.tree.map(jnp.shape, theirs)
    weights = rng.normal(size=flat(state).shape)

    def ours(params, state):
        new, output = named.apply({"params": params}, state, x)
        return (flat(new) * weights).sum(), (flat(new), output)

    def of_proof(params, state):
        new, output = general.apply({"params": mapped(params)}, flat(state), x)
        return (new * weights).sum(), (new, output)

    def both_cells(*arguments):
        return [jax.value_and_grad(f, argnums=(0, 1), has_aux=True)(*arguments) for f in (ours, of_proof)]

    found, expected = jax.jit(both_cells, compiler_options=QUICKLY)(params, state)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9), found, expected)
    (_, (new, _)), grads = found
    assert np.abs(new).max() > 0.1
    dead = [name for name, leaf in jax.tree_util.tree_leaves_with_path(grads) if not np.abs(leaf).max() > 0]
    assert not dead  # every parameter took part in the comparison


def test_erasing_is_a_proof():
    """M - M * (w (x) e) as a term, against `rings.write`, which the memory cells use."""
    of = logic.Lolli(W, V)
    copies = logic.Lolli(W, logic.Tensor(W, W))
    proof = logic.banged(of, logic.dual(W), copies, logic.endo(V), erased)
    logic.check(proof)
    rng = np.random.default_rng(1)
    memory, w, e = rng.normal(size=(WIDTH, LOCATIONS)), rng.random(LOCATIONS), rng.random(WIDTH)
    found = logic.denote(proof)(memory, w, COPY, -np.diag(e))
    expected = rings.write(*map(jnp.asarray, (memory, w, np.zeros(WIDTH), e)))
    np.testing.assert_allclose(logic.matrix(found, LOCATIONS), expected, rtol=1e-12)
    assert np.abs(expected - memory).max() > 0.1
