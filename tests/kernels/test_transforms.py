"""The three operations under JAX's transformations, against their definitions, and what a mask excludes."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels import Logit, trans, trilinear_attention, two_simplicial_attention
from tests import jaxprs

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape) * 0.7, jnp.float32)


def random_mask(*shape):
    return jnp.asarray(np.random.default_rng(5).random(shape) < 0.6)


def two(logit: Logit, mask=None):
    shapes = (2, 4, 2, 6), (2, 3, 2, 6), (2, 3, 2, 6), (2, 3, 2, 4), (2, 3, 4, 4)
    function = functools.partial(two_simplicial_attention, logit=logit, mask=mask)
    return function, tuple(draw(*shape, seed=seed) for seed, shape in enumerate(shapes))


CASES: dict[str, tuple[Any, tuple]] = {
    "unsigned, masked": two("unsigned", random_mask(2, 4, 3, 3)),
    "signed": two("signed"),
    "trilinear logit": two("trilinear"),
    "trans": (
        functools.partial(trans, mask=random_mask(2, 1, 5, 4)),
        (draw(2, 2, 5, 4), draw(2, 2, 4, 3, seed=1)),
    ),
    "trans, causal": (functools.partial(trans, causal=True), (draw(2, 2, 4, 4), draw(2, 2, 4, 3, seed=1))),
    "trilinear": (
        functools.partial(trilinear_attention, causal=True, window1=2, window2=4),
        (draw(1, 7, 4, 3), *(draw(1, 7, 2, 3, seed=seed) for seed in range(1, 5))),
    ),
    "trilinear, all pairs": (
        trilinear_attention,
        (draw(1, 4, 2, 3), *(draw(1, 4, 2, 3, seed=seed) for seed in range(1, 5))),
    ),
}
ALIKE = ("signed", "trilinear logit", "trilinear, all pairs")  # they differ from others in their logits only


def loss(function):
    return lambda *x: (lambda out: (out * jnp.sin(out)).sum())(function(*x))


def tangents(arrays):
    return tuple(x[::-1] + 0.1 for x in arrays)


def every(arrays):
    return tuple(range(len(arrays)))


def jvp(function, arrays):
    return jax.jvp(function, arrays, tangents(arrays))


def jvp_of_one(function, arrays):
    """The tangents of the other arrays are zero."""
    return jax.jvp(lambda x: function(*arrays[:-1], x), arrays[-1:], tangents(arrays[-1:]))


def jacfwd(function, arrays):
    return jax.jacfwd(lambda x: function(x, *arrays[1:]))(arrays[0])


def grad_of_grad(function, arrays):
    def norm(*x):
        return sum((g**2).sum() for g in jax.grad(loss(function), every(x))(*x))

    return jax.grad(norm, every(arrays))(*arrays)


def jvp_of_grad(function, arrays):
    return jax.jvp(jax.grad(loss(function), every(arrays)), arrays, tangents(arrays))


def grad_of_jvp(function, arrays):
    def norm(*x):
        return (jax.jvp(function, x, tangents(arrays))[1] ** 2).sum()

    return jax.grad(norm, every(arrays))(*arrays)


def hessian(function, arrays):
    return jax.hessian(lambda x: loss(function)(x, *arrays[1:]))(arrays[0])


def vmap_of_one(function, arrays):
    """Over the last array only, such as bilinear; nested, and under the gradient."""
    stacked = jnp.stack([arrays[-1], 2 * arrays[-1]])[:, None]

    def mapped(x):
        inner = jax.vmap(lambda x: function(*arrays[:-1], x))
        return (jax.vmap(inner)(x) ** 2).sum()

    return jax.value_and_grad(mapped)(stacked)


def checkpoint_and_scan(function, arrays):
    def scanned(*x):
        step = jax.checkpoint(lambda c, s: (c + loss(function)(x[0] * s, *x[1:]), None))
        return jax.lax.scan(step, 0.0, jnp.array([1.0, 0.5]))[0]

    return jax.grad(scanned, every(arrays))(*arrays)


FIRST = (jvp, jvp_of_one, jacfwd)
SECOND = (grad_of_grad, jvp_of_grad, grad_of_jvp, hessian, vmap_of_one, checkpoint_and_scan)


def is_cheap(transform, name):
    first = (transform is jvp and name not in ALIKE) or (transform is jvp_of_one and name == "signed")
    return first or name == "trans"


def compare(transform, name):
    function, arrays = CASES[name]

    def of(implementation):
        named = functools.partial(function, implementation=implementation)
        return jax.tree.leaves(jax.jit(lambda *x: transform(named, x))(*arrays))

    for got, want in zip(of("xla"), of("reference"), strict=True):
        assert jnp.linalg.norm(got - want) <= 1e-5 * jnp.linalg.norm(want) + 1e-7


@pytest.mark.parametrize(
    ("transform", "name"),
    [pair for pair in itertools.product((*FIRST, *SECOND), CASES) if is_cheap(*pair)],
)
def test_equals_the_definition(transform, name):
    compare(transform, name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        ("unsigned, masked",),
        ("signed",),
        ("trilinear logit",),
        ("trilinear", "trans, causal"),
        ("trilinear, all pairs",),
    ],
    ids=", ".join,
)
def test_every_transformation_equals_the_definition(names):
    for pair in itertools.product((*FIRST, *SECOND), names):
        if not is_cheap(*pair):
            compare(*pair)


def test_donated_arrays():
    function, arrays = CASES["trans"]
    want = jax.jit(jax.grad(loss(function)))(*arrays)
    step = jax.jit(jax.grad(loss(function)), donate_argnums=0)
    np.testing.assert_array_equal(step(jnp.copy(arrays[0]), *arrays[1:]), want)


def largest(jaxpr) -> int:
    """The number of elements of the largest array in a program."""
    return max(v.aval.size for equation in jaxprs.equations(jaxpr) for v in equation.outvars)


def test_forward_mode_forms_no_array_over_triples():
    """`jvp` evaluates one linear call, whose program is that of blocks; and so does `jacfwd`."""
    triples = 128**3
    query = draw(1, 128, 1, 12)
    arrays = query, query, query, query, draw(1, 12, 12, 12)

    def moved(*x):
        return jax.jvp(two_simplicial_attention, x, x)

    memory: Any = jax.jit(moved).lower(*arrays).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 4 * triples / 2
    plain = functools.partial(two_simplicial_attention, implementation="reference")
    assert largest(jax.make_jaxpr(plain)(*arrays).jaxpr) == triples
    assert largest(jax.make_jaxpr(two_simplicial_attention)(*arrays).jaxpr) < triples / 2


# ---- what a mask excludes


def excluding(name):
    """A function, its arrays, and for each array what nobody attends to."""
    if name == "trans, causal":
        function, arrays = CASES[name]
        return function, arrays, (jnp.broadcast_to(~jnp.tri(4, dtype=bool), arrays[0].shape), False)
    if name == "trans":
        allowed = random_mask(2, 1, 5, 4).at[:, :, :, 1].set(False).at[1, :, 2].set(False)
        function, (logits, premise) = functools.partial(trans, mask=allowed), CASES[name][1]
        hidden = ~jnp.broadcast_to(allowed, logits.shape)
        return function, (logits, premise), (hidden, hidden.all(2)[..., None])
    if name == "padding":
        seen = jnp.array([[True, True, False], [True, False, False]])
        allowed = seen[:, None, :, None] & seen[:, None, None, :]
    else:
        allowed = random_mask(2, 4, 3, 3).at[0, :, 1].set(False).at[1, :, :, 2].set(False)
        allowed = allowed.at[1, 3].set(False)
    logit: Logit = "unsigned" if name == "padding" else "signed"
    function, arrays = two(logit, allowed)
    hidden = [~allowed.any(axes)[..., None, None] for axes in ((2, 3), (1, 3), (1, 2))]
    return function, arrays, (*hidden, hidden[1] & hidden[2], False)


@pytest.mark.parametrize("name", ["trans", "trans, causal", "padding"])
def test_what_nobody_attends_to_may_hold_anything(name):
    """Results as if it were 0, and gradients of 0."""
    fill(name, "xla")


@pytest.mark.slow
def test_what_nobody_attends_to_may_hold_anything_in_a_kernel_and_with_any_mask():
    for name in ("trans", "trans, causal", "padding", "any"):
        for implementation in ("xla", "tpu_interpret"):
            fill(name, implementation)


def fill(name, implementation):
    function, arrays, hidden = excluding(name)

    @jax.jit
    def both(*x):
        return jax.value_and_grad(loss(functools.partial(function, implementation=implementation)), every(x))(
            *x
        )

    def filled(value):
        return [jnp.where(where, value, x) for where, x in zip(hidden, arrays, strict=True)]

    assert any(jnp.any(where) for where in hidden)
    want, expected = both(*filled(0.0))
    for value in (np.nan, np.inf, 1e30):
        got, gradients = both(*filled(value))
        np.testing.assert_allclose(got, want, rtol=1e-6)
        for g, e, where in zip(gradients, expected, hidden, strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-6)
            assert not jnp.any(jnp.where(where, g, 0))


@pytest.mark.parametrize("name", ["trans", "any"])
def test_a_row_with_nothing_allowed_stops_cotangents(name):
    """Normalising its result of 0 gives NaN."""
    function, arrays, _ = excluding(name)

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def of(x, fill):
        out = function(x, *arrays[1:])
        empty = (out == 0).all(-1, keepdims=True)
        return (jnp.where(empty, fill, 1) * out).sum(), empty.any()

    (got, some), (want, _) = (of(arrays[0], fill) for fill in (jnp.nan, 0.0))
    assert some
    np.testing.assert_allclose(got, want, rtol=1e-6)
