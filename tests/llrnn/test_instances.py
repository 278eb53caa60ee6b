"""Every named cell equals the LLRNN cell of a proof, in float64: values, and for some cells gradients.

The parameters are those of the named cell; `mapped` converts them to those of the general cell. test_cells
and test_memory compare the named cells with NumPy, so that each equality here compares the logic with those
equations too.
"""

import functools

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
    "dihedral that erases": lambda: dihedral(erase=True),
    "operators": lambda: operator_memory("controller"),
    "operators, powers": lambda: operator_memory("input"),
    "operators that are erased": lambda: operator_memory("controller", erase=True),
    "pattern, previous memory": lambda: pattern("previous"),
    "pattern with a gate": lambda: pattern("updated", direct=True),
    "pattern that erases": lambda: pattern("updated", direct=True, erase=True),
    "multiple pattern": multiple_pattern,
    "polynomial step": polynomial_step,
    "stack": stack,
}


def flat(state):
    """Returns a state as the general cell has it: the factors one after the other, matrices row by row."""
    return jnp.concatenate([leaf.reshape(BATCH, -1) for leaf in jax.tree.leaves(state)], axis=1)


DIFFERENTIATED = {"second order", "higher order", "ntm"}  # since most of the time is compiling


@pytest.mark.parametrize("case", CASES)
def test_named_cell_is_the_cell_of_its_proof(case):
    """The start, and one step from the same random states with random parameters, for some with gradients."""
    named, general, mapped = CASES[case]()
    general = general.copy(param_dtype=jnp.float64)
    given = 4 if case == "higher order, given" else 0
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(BATCH, given + INPUTS)))
    key = jax.random.key(0)

    def begun(cell):
        return cell.initialize_carry(key, x.shape)

    # Positive numbers for addresses, which may be sharpened.
    state = jax.tree.map(lambda leaf: 0.3 + rng.random(leaf.shape), jax.eval_shape(lambda: begun(named)))
    shapes = jax.eval_shape(named.init, key, state, x)["params"]
    params = jax.tree.map(lambda leaf: 0.6 * rng.normal(size=leaf.shape), shapes)
    # The mapping gives the general cell exactly the parameters that it asks for.
    theirs = jax.eval_shape(lambda: general.init(key, begun(general), x)["params"])
    assert jax.tree.map(jnp.shape, mapped(params)) == jax.tree.map(jnp.shape, theirs)

    def ours(params, state):
        new, output = named.apply({"params": params}, state, x)
        return jnp.sin(flat(new)).sum(), (flat(new), output)

    def of_proof(params, state):
        new, output = general.apply({"params": mapped(params)}, flat(state), x)
        return jnp.sin(new).sum(), (new, output)

    @functools.partial(jax.jit, compiler_options=QUICKLY)
    def both_cells(*arguments):
        grad = functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
        steps = [(grad(f) if case in DIFFERENTIATED else f)(*arguments) for f in (ours, of_proof)]
        return list(zip((flat(begun(named)), begun(general)), steps, strict=True))

    leaves, tree = jax.tree.flatten((params, state))
    # Each parameter and part of the state is changed once, to see that it takes part in the comparison.
    results = []
    for changed in (None, *range(len(leaves))):
        moved = [leaf + 0.2 * rng.random(leaf.shape) * (at == changed) for at, leaf in enumerate(leaves)]
        found, expected = both_cells(*jax.tree.unflatten(tree, moved))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9), found, expected)
        results.append(np.asarray(jax.tree.leaves(found)[2]))
    assert np.abs(results[0]).max() > 0.1
    assert all(np.abs(other - results[0]).max() > 0 for other in results[1:])


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
