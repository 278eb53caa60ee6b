"""Tests the named cells against the paper's equations in float64 NumPy, with explicit powers."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from llrnn import cells
from llrnn.cells import recurrent
from tests import jaxprs

pytestmark = pytest.mark.usefixtures("compiled_quickly", "x64")

BATCH, INPUTS, FEATURES = 2, 3, 5


def relu(x):
    return np.maximum(x, 0)


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def second_order(params, suffix, h, x):
    return np.einsum("kij,k,j->i", params["operators" + suffix], x, h)  # (2.3)


def multiplicative(params, suffix, h, x):
    diagonal = np.diag(x @ params["diagonal" + suffix])
    return params["expand" + suffix] @ diagonal @ params["contract" + suffix] @ h  # (2.7)


def higher_order(p, params, suffix, h, x):
    alpha = np.einsum("kij,k->ij", params["operators" + suffix], x)
    return sum(w * np.linalg.matrix_power(alpha, i) @ h for i, w in enumerate(p))  # (2.13)


def affine(params, h, x):
    return h @ params["hidden"]["kernel"] + x @ params["input"]["kernel"] + params["input"]["bias"]


def oracle_step(cell, params, h, x):
    """Computes one step of one sequence in NumPy."""
    if isinstance(cell, cells.ElmanCell):
        return relu(affine(params, h, x))
    if isinstance(cell, cells.SecondOrderCell):
        term = lambda suffix: second_order(params, suffix, h, x)  # noqa: E731
    elif isinstance(cell, cells.MultiplicativeCell):
        term = lambda suffix: multiplicative(params, suffix, h, x)  # noqa: E731
    else:
        count = cell.max_power + 1
        if cell.coupling == "given":
            p, x = x[:count], x[count:]
        else:
            p = softmax(h @ params["powers"]["kernel"] + params["powers"]["bias"])
        term = lambda suffix: higher_order(p, params, suffix, h, x)  # noqa: E731
    if cell.update == "draft":
        return relu(term("") + affine(params, h, x))
    if cell.update == "later":
        return relu(term("_in") + affine(params, h, x)) + term("_out")
    new = term("")
    return new / np.linalg.norm(new) if cell.normalize else new


CASES = [
    cells.ElmanCell(FEATURES),
    cells.SecondOrderCell(FEATURES),
    cells.SecondOrderCell(FEATURES, update="later"),
    cells.SecondOrderCell(FEATURES, update="linear", normalize=True),
    cells.MultiplicativeCell(FEATURES, factors=4),
    cells.MultiplicativeCell(FEATURES, update="later"),
    cells.MultiplicativeCell(FEATURES, update="linear"),
    cells.HigherOrderCell(FEATURES, max_power=3),
    cells.HigherOrderCell(FEATURES, max_power=0),
    cells.HigherOrderCell(FEATURES, max_power=2, update="later"),
    cells.HigherOrderCell(FEATURES, max_power=11),
    cells.HigherOrderCell(FEATURES, max_power=2, coupling="given"),
    cells.HigherOrderCell(FEATURES, max_power=2, coupling="given", update="linear", normalize=True),
    cells.HigherOrderCell(FEATURES, max_power=1, coupling="given", update="later"),
]


def described(cell):
    parts = [
        type(cell).__name__,
        cell.update,
        getattr(cell, "coupling", None),
        getattr(cell, "max_power", None),
    ]
    return "-".join(str(part) for part in parts if part is not None)


def quickly(function: Any) -> Any:
    """Compiles a function without optimisation, since compilation dominates the time of these tests."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def apply(module: Any, variables: Any, *args: Any, **options: Any) -> Any:
    return quickly(lambda v, *a: module.apply(v, *a, **options))(variables, *args)


@pytest.mark.parametrize("cell", CASES, ids=described)
def test_against_the_equations(cell):
    """One step from random states, for parameters that are all random."""
    cell = cell.copy(param_dtype=jnp.float64)
    given = cell.max_power + 1 if getattr(cell, "coupling", "") == "given" else 0
    rng = np.random.default_rng(0)
    h, x = rng.normal(size=(BATCH, FEATURES)), rng.normal(size=(BATCH, given + INPUTS))
    shapes = jax.eval_shape(cell.init, jax.random.key(0), h, x)["params"]
    params = jax.tree.map(lambda leaf: 0.6 * rng.normal(size=leaf.shape), shapes)
    new, output = apply(cell, {"params": params}, h, x)
    want = [oracle_step(cell, params, h[b], x[b]) for b in range(BATCH)]
    np.testing.assert_allclose(new, want, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(output, new)
    assert np.abs(want).max() > 0.1  # the comparison above was not between zeros


def test_a_sequence_starts_at_zero_or_at_the_first_unit_vector():
    """A linear update would stay at 0."""
    for update, start in (("draft", np.zeros(3)), ("later", np.zeros(3)), ("linear", np.eye(3)[0])):
        carry = cells.SecondOrderCell(3, update=update).initialize_carry(jax.random.key(0), (2, 4, 7))
        assert carry.dtype == jnp.float32
        np.testing.assert_array_equal(carry, np.broadcast_to(start, (2, 4, 3)))


def drawn(cell, inputs, *names):
    """Returns new parameters for states of any number of features: those named, or all."""

    @quickly
    def init(key):
        params = cell.init(key, jnp.zeros((1, cell.features)), jnp.zeros((1, inputs)))["params"]
        return {name: params[name] for name in names or params}  # what is left out is not compiled

    return jax.device_get(init(jax.random.key(3)))


def test_initial_operators_keep_the_length_of_the_state():
    """For a one-hot input: the entries of V_k, of I and of J have variance 1 / columns, the diagonal 1."""
    with jax.enable_x64(False):
        params = drawn(cells.SecondOrderCell(40), 30, "operators")
        assert np.std(params["operators"]) == pytest.approx(40**-0.5, rel=0.02)
        names = "operators_in", "operators_out"
        params = drawn(cells.HigherOrderCell(40, update="later"), 30, *names)
        for name in names:
            assert np.std(params[name]) == pytest.approx(40**-0.5, rel=0.02)
        names = "expand", "diagonal", "contract"
        params = drawn(cells.MultiplicativeCell(50, factors=200), 90, *names)
        expand, diagonal, contract = (params[name] for name in names)
        assert np.std(expand) == pytest.approx(200**-0.5, rel=0.03)
        assert np.std(contract) == pytest.approx(50**-0.5, rel=0.03)
        assert np.std(diagonal) == pytest.approx(1, rel=0.03)
        h = np.random.default_rng(0).normal(size=(90, 50))
        changed = np.einsum("ik,bk,kj,bj->bi", expand, diagonal, contract, h, optimize=True)
        assert np.mean(np.square(changed)) == pytest.approx(np.mean(h**2), rel=0.1)


def test_maps_start_orthogonal_from_the_state_and_of_unit_scale_from_the_input():
    with jax.enable_x64(False):
        params = drawn(cells.HigherOrderCell(60, max_power=3), 40)
        hidden = params["hidden"]["kernel"]
        np.testing.assert_allclose(hidden @ hidden.T, np.eye(60), atol=1e-5)
        assert np.std(params["input"]["kernel"]) == pytest.approx(40**-0.5, rel=0.05)
        assert np.std(params["powers"]["kernel"]) == pytest.approx(60**-0.5, rel=0.15)
        for name in ("input", "powers"):
            np.testing.assert_array_equal(params[name]["bias"], 0)
        assert set(params["hidden"]) == {"kernel"}  # one bias in all
        constants = [nn.initializers.constant(value) for value in (1.0, 2.0, 3.0, 4.0)]
        named = ("kernel_init", "recurrent_kernel_init", "bias_init", "operator_init")
        options: dict[str, Any] = dict(zip(named, constants, strict=True))
        params = drawn(cells.HigherOrderCell(2, **options), 3)
        values = {
            jax.tree_util.keystr(k): set(np.ravel(v)) for k, v in jax.tree_util.tree_leaves_with_path(params)
        }
        assert values == {
            "['hidden']['kernel']": {2}, "['input']['kernel']": {1}, "['input']['bias']": {3},
            "['powers']['kernel']": {1}, "['powers']['bias']": {3}, "['operators']": {4},
        }  # fmt: skip


def by_steps(p, alpha, v):
    return recurrent.power_superposition(p, lambda u: recurrent.apply_operator(alpha, u), v)


@pytest.mark.parametrize("superposition", [by_steps, recurrent.matrix_power_superposition])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_power_superposition_and_its_gradient(count, superposition):
    rng = np.random.default_rng(1)
    p, alpha, v, w = rng.normal(size=(count,)), 0.5 * rng.normal(size=(4, 4)), *rng.normal(size=(2, 4))

    def f(p, alpha, v):
        return w @ superposition(p, alpha, v)

    powers = [np.linalg.matrix_power(alpha, i) for i in range(count)]
    value, (dp, dalpha, dv) = quickly(jax.value_and_grad(f, argnums=(0, 1, 2)))(p, alpha, v)
    np.testing.assert_allclose(value, sum(c * w @ m @ v for c, m in zip(p, powers, strict=True)), rtol=1e-9)
    np.testing.assert_allclose(dp, [w @ m @ v for m in powers], rtol=1e-9)
    np.testing.assert_allclose(dv, sum(c * w @ m for c, m in zip(p, powers, strict=True)), rtol=1e-9)
    # d(w alpha^i v) = sum_j (alpha^j)^T w (alpha^(i-1-j) v)^T
    want = np.zeros((4, 4))
    for i in range(count):
        for j in range(i):
            want += p[i] * np.outer(powers[j].T @ w, powers[i - 1 - j] @ v)
    np.testing.assert_allclose(dalpha, want, rtol=1e-9, atol=1e-12)


def test_derivatives_of_matrix_powers_of_any_kind():
    """Forward mode, second order, under vmap, and with the recomputed operator."""
    rng, count = np.random.default_rng(2), 4
    p, v = rng.normal(size=(2, 3, count)), rng.normal(size=(2, 3, 4))
    x, operators = rng.normal(size=(2, 3, 2)), 0.5 * rng.normal(size=(2, 4, 4))

    def formed(superposition):
        return lambda p, operators, x, v: superposition(p, jnp.einsum("...k,kij->...ij", x, operators), v)

    def scalar(function):
        return lambda *arguments: jnp.sum(jnp.sin(function(*arguments)))

    arguments = p, operators, x, v
    tangents = tuple(rng.normal(size=a.shape) for a in arguments)

    def derivatives(function):
        def both(arguments, tangents):
            gradient = jax.grad(scalar(function), argnums=(0, 1, 2, 3))
            return jax.jvp(function, arguments, tangents), jax.jvp(gradient, arguments, tangents)

        return jax.jit(both)(arguments, tangents)

    first, second = derivatives(formed(by_steps))
    ours, ours_second = derivatives(recurrent.second_order_powers)
    np.testing.assert_allclose(ours[0], first[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ours[1], first[1], rtol=1e-10, atol=1e-10)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), ours_second, second)


def test_no_power_is_formed():
    """One product computes the operator from the input, and no product has two operators as factors."""
    cell = cells.HigherOrderCell(7, max_power=5)
    x, h = jnp.ones((2, 3)), jnp.ones((2, 7))
    variables = jax.eval_shape(cell.init, jax.random.key(0), h, x)
    forward = jax.make_jaxpr(lambda v: cell.apply(v, h, x))(variables)
    products = [e for e in jaxprs.equations(forward.jaxpr) if e.primitive.name == "dot_general"]
    makes_operator = [e for e in products if e.outvars[0].aval.shape in ((2, 7, 7), (2, 49))]
    takes_two = [e for e in products if all(v.aval.shape == (2, 7, 7) for v in e.invars)]
    assert len(makes_operator) == 1
    assert not takes_two


def test_normalised_state_keeps_length_one_and_finite_gradients():
    cell = cells.SecondOrderCell(6, update="linear", normalize=True, param_dtype=jnp.float64)
    rnn = nn.RNN(cell)
    rng = np.random.default_rng(1)
    x = jnp.asarray(np.eye(4)[rng.integers(0, 4, (3, 40))])
    shapes = jax.eval_shape(rnn.init, jax.random.key(0), x)
    variables = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), shapes)
    np.testing.assert_allclose(np.linalg.norm(apply(rnn, variables, x), axis=-1), 1.0, rtol=1e-9)
    dead = jax.tree.map(np.zeros_like, variables)  # every operator is 0, so the state vanishes at once
    grads = quickly(jax.grad(lambda v: cast(Any, rnn.apply(v, x)).sum()))(dead)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))


@pytest.mark.parametrize("kind", [cells.ElmanCell, cells.SecondOrderCell, cells.MultiplicativeCell])
def test_a_bfloat16_computation_keeps_the_states_dtype(kind):
    """The state is float32, with values that were computed in bfloat16; so are the parameters."""
    with jax.enable_x64(False):
        rng = np.random.default_rng(0)
        h, x = (jnp.asarray(rng.normal(size=(4, size)), jnp.float32) for size in (FEATURES, INPUTS))
        for dtype in (jnp.bfloat16, None):
            cell = kind(FEATURES, dtype=dtype, activation=lambda x: x)
            variables = jax.eval_shape(cell.init, jax.random.key(0), h, x)
            assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(variables))
            variables = jax.tree.map(
                lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), variables
            )
            new, output = jax.device_get(cell.apply(variables, h, x))  # not compiled, which might not round
            assert new.dtype == output.dtype == jnp.float32
            assert (new.astype(jnp.bfloat16) == new).all() == (dtype is jnp.bfloat16)


def test_powers_are_computed_in_bfloat16_too():
    with jax.enable_x64(False):
        small = {"dtype": jnp.bfloat16, "param_dtype": jnp.bfloat16}
        init = nn.initializers.lecun_normal()  # an orthogonal matrix needs 32 bits
        cell = cells.HigherOrderCell(3, recurrent_kernel_init=init, **small)
        h, x = jnp.ones((2, 3), jnp.float32), jnp.ones((2, 4), jnp.float32)
        variables = jax.eval_shape(cell.init, jax.random.key(0), h, x)
        assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(variables))
        jaxpr = jax.make_jaxpr(lambda v: cell.apply(v, h, x)[0])(variables).jaxpr
        products = [
            e.outvars[0].aval.dtype for e in jaxprs.equations(jaxpr) if e.primitive.name == "dot_general"
        ]
        assert set(products) == {jnp.dtype("bfloat16")}
        assert cell.initialize_carry(jax.random.key(0), (1, 4)).dtype == jnp.bfloat16


def test_the_gradient_keeps_no_operator_of_the_batch():
    """An operator per sequence, D x D, is computed again: among what is kept, none has the batch's axis."""
    rng = np.random.default_rng(0)
    p, operators, x, v = (rng.normal(size=shape) for shape in ((6, 3), (2, 5, 5), (6, 2), (6, 5)))
    _, pullback = jax.vjp(recurrent.second_order_powers, p, operators, x, v)
    kept = {jnp.shape(leaf) for leaf in jax.tree.leaves(pullback)}
    assert (2, 5, 5) in kept
    assert (6, 5, 5) not in kept


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            lambda: cells.SecondOrderCell(5, update="up"),  # pyrefly: ignore
            "update: got 'up', expected one of 'draft', 'later', 'linear'",
        ),
        (
            lambda: cells.SecondOrderCell(5, normalize=True),
            "update: got 'draft', expected 'linear' with norm",
        ),
        (lambda: cells.SecondOrderCell(0), "features: got 0, expected at least 1"),
        (lambda: cells.ElmanCell(5, update="linear"), "update: got 'linear', expected 'draft'"),
        (lambda: cells.HigherOrderCell(5, max_power=-1), "max_power: got -1, expected at least 0"),
        (
            lambda: cells.HigherOrderCell(5, coupling="learned"),  # pyrefly: ignore
            "coupling: got 'learned', expected one of 'predicted', 'given'",
        ),
        (
            lambda: cells.HigherOrderCell(5, max_power=2, coupling="given"),
            r"inputs: got shape \(1, 3\), expected more than 3 features",
        ),
        (lambda: cells.MultiplicativeCell(5, factors=0), "factors: got 0, expected None or at least 1"),
    ],
)
def test_bad_fields_are_named(cell, message):
    with pytest.raises(ValueError, match=message):
        cell().init(jax.random.key(0), jnp.ones((1, 5)), jnp.ones((1, 3)))


def test_the_smallest_cells():
    h, x = jnp.ones((2, 1)), jnp.ones((2, 1))
    for cell in (
        cells.ElmanCell(1),
        cells.MultiplicativeCell(1, factors=1),
        cells.HigherOrderCell(1, max_power=0),
    ):
        assert jax.eval_shape(cell.init_with_output, jax.random.key(0), h, x)[0][0].shape == (2, 1)
    with pytest.raises(ValueError, match="features: got None, expected at least 1"):
        cells.ElmanCell(None).init(jax.random.key(0), h, x)  # pyrefly: ignore


def test_bad_carry_is_shown_with_both_shapes():
    with pytest.raises(
        ValueError, match=r"carry: got shape \(2, 4\), expected \[\*B, 5\] = \(2, 5\) for inputs \(2, 3\)"
    ):
        cells.ElmanCell(5).init(jax.random.key(0), jnp.ones((2, 4)), jnp.ones((2, 3)))


@pytest.mark.parametrize("inputs", [3, 7])
def test_second_order_term_in_either_order_of_summing(inputs):
    """Fewer input features than hidden ones, and more: (2.3) written out."""
    rng = np.random.default_rng(inputs)
    operators, x, h = rng.normal(size=(inputs, 5, 5)), rng.normal(size=(4, inputs)), rng.normal(size=(4, 5))
    expected = np.zeros((4, 5))
    for b, i, j, k in np.ndindex(4, 5, 5, inputs):
        expected[b, i] += operators[k, i, j] * h[b, j] * x[b, k]
    found = cells.recurrent.second_order_term(*(jnp.asarray(part, jnp.float32) for part in (operators, x, h)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
