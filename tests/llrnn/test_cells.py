"""Tests the named cells against the paper's equations in float64 NumPy, with explicit powers."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from llrnn import cells
from llrnn.cells import recurrent

BATCH, TIME, INPUTS, FEATURES = 2, 4, 3, 5


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


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
    cell = cell.copy(param_dtype=jnp.float64)
    given = cell.max_power + 1 if getattr(cell, "coupling", "") == "given" else 0
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH, TIME, given + INPUTS))
    rnn = nn.RNN(cell)
    params = rnn.init(jax.random.key(0), x)["params"]
    # Biases start at 0: noise on every leaf gives each of them an effect.
    params = jax.tree.map(lambda leaf: np.asarray(leaf) + 0.3 * rng.normal(size=leaf.shape), params)
    start = np.eye(FEATURES)[0] if cell.update == "linear" else np.zeros(FEATURES)
    want = np.zeros((BATCH, TIME, FEATURES))
    for b in range(BATCH):
        h = start
        for t in range(TIME):
            want[b, t] = h = oracle_step(cell, params["cell"], h, x[b, t])
    np.testing.assert_allclose(apply(rnn, {"params": params}, x), want, rtol=1e-9, atol=1e-9)
    assert np.abs(want).max() > 0.1  # the comparison above was not between zeros


def by_steps(p, alpha, v):
    return recurrent.power_superposition(p, lambda u: recurrent.apply_operator(alpha, u), v)


@pytest.mark.parametrize("superposition", [by_steps, recurrent.matrix_power_superposition])
@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_power_superposition_and_its_gradient(count, superposition):
    rng = np.random.default_rng(1)
    p, alpha, v, w = rng.normal(size=(count,)), 0.5 * rng.normal(size=(4, 4)), *rng.normal(size=(2, 4))

    def f(p, alpha, v):
        return w @ superposition(p, alpha, v)

    powers = [np.linalg.matrix_power(alpha, i) for i in range(count)]
    value, (dp, dalpha, dv) = jax.value_and_grad(f, argnums=(0, 1, 2))(*map(jnp.asarray, (p, alpha, v)))
    np.testing.assert_allclose(value, sum(c * w @ m @ v for c, m in zip(p, powers, strict=True)), rtol=1e-9)
    np.testing.assert_allclose(dp, [w @ m @ v for m in powers], rtol=1e-9)
    np.testing.assert_allclose(dv, sum(c * w @ m for c, m in zip(p, powers, strict=True)), rtol=1e-9)
    # d(w alpha^i v) = sum_j (alpha^j)^T w (alpha^(i-1-j) v)^T
    want = np.zeros((4, 4))
    for i in range(count):
        for j in range(i):
            want += p[i] * np.outer(powers[j].T @ w, powers[i - 1 - j] @ v)
    np.testing.assert_allclose(dalpha, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("count", [1, 4])
def test_derivatives_of_matrix_powers_of_any_kind(count):
    """Forward mode, second order, under vmap, and with the recomputed operator."""
    rng = np.random.default_rng(2)
    p, v = rng.normal(size=(2, 3, count)), rng.normal(size=(2, 3, 4))
    x, operators = rng.normal(size=(2, 3, 2)), 0.5 * rng.normal(size=(2, 4, 4))

    def formed(superposition):
        return lambda p, operators, x, v: superposition(p, jnp.einsum("...k,kij->...ij", x, operators), v)

    def scalar(function):
        return lambda *arguments: jnp.sum(jnp.sin(function(*arguments)))

    arguments = p, operators, x, v
    tangents = tuple(rng.normal(size=a.shape) for a in arguments)
    want = formed(by_steps)
    for function in (formed(recurrent.matrix_power_superposition), recurrent.second_order_powers):
        ours, theirs = (jax.jvp(f, arguments, tangents) for f in (function, want))
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-10, atol=1e-10)
        ours, theirs = (
            jax.jvp(jax.grad(scalar(f), argnums=(0, 1, 2, 3)), arguments, tangents) for f in (function, want)
        )
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), ours, theirs)


def equations(jaxpr):
    """Yields every equation of a jaxpr, including those inside loops and calls."""
    for equation in jaxpr.eqns:
        yield equation
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda v: hasattr(v, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def test_no_power_is_formed():
    """One product computes the operator from the input, and no product has two operators as factors."""
    cell = cells.HigherOrderCell(7, max_power=5)
    x, h = jnp.ones((2, 3)), jnp.ones((2, 7))
    variables = jax.eval_shape(cell.init, jax.random.key(0), h, x)
    forward = jax.make_jaxpr(lambda v: cell.apply(v, h, x))(variables)
    products = [e for e in equations(forward.jaxpr) if e.primitive.name == "dot_general"]
    makes_operator = [e for e in products if e.outvars[0].aval.shape in ((2, 7, 7), (2, 49))]
    takes_two = [e for e in products if all(v.aval.shape == (2, 7, 7) for v in e.invars)]
    assert len(makes_operator) == 1
    assert not takes_two


def test_normalised_state_keeps_length_one_and_finite_gradients():
    cell = cells.SecondOrderCell(6, update="linear", normalize=True, param_dtype=jnp.float64)
    rnn = nn.RNN(cell)
    x = jax.nn.one_hot(jax.random.randint(jax.random.key(1), (3, 40), 0, 4), 4, dtype=jnp.float64)
    variables = quickly(rnn.init)(jax.random.key(0), x)
    np.testing.assert_allclose(jnp.linalg.norm(apply(rnn, variables, x), axis=-1), 1.0, rtol=1e-9)
    dead = jax.tree.map(jnp.zeros_like, variables)  # every operator is 0, so the state vanishes at once
    grads = quickly(jax.grad(lambda v: cast(Any, rnn.apply(v, x)).sum()))(dead)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(grads))


def test_state_keeps_its_dtype_under_a_bfloat16_computation():
    with jax.enable_x64(False):
        x = jnp.ones((2, 3, INPUTS), jnp.float32)
        for kind in (cells.HigherOrderCell, cells.ElmanCell):
            rnn = nn.RNN(kind(FEATURES, dtype=jnp.bfloat16))
            variables = quickly(rnn.init)(jax.random.key(0), x)
            assert apply(rnn, variables, x).dtype == jnp.float32
            assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(variables))


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
        nn.RNN(cell()).init(jax.random.key(0), jnp.ones((1, 2, 3)))


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
