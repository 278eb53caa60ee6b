"""The public function: what it refuses, shapes it accepts, transformations it is used under."""

import dataclasses
from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from kernels.two_simplicial import api, shapes
from kernels.two_simplicial.api import two_simplicial_attention
from kernels.two_simplicial.reference import Config
from tests.kernels.two_simplicial import cases

pytestmark = pytest.mark.usefixtures("compiled_quickly")

NAMES = (*cases.NAMES, "mask")


def arguments(shape=shapes.TINY, mask="none", **options):
    return dict(zip(NAMES, cases.arrays(shape, mask=mask, **options), strict=True))


def changed(**changes):
    return {**arguments(), **changes}


def zeros(*shape):
    return jnp.zeros(shape)


# TINY: B=2, H=2, N=5, M=3, D=6, E=4, F=7.
BAD = {
    "rank of query": ({"query": zeros(5, 6)}, r"query: got shape \(5, 6\), expected \[\.\.\., N, H, D\]"),
    "rank of key1": ({"key1": zeros(3, 6)}, r"key1: got shape \(3, 6\)"),
    "rank of value": ({"value": zeros()}, r"value: got shape \(\), expected \[\.\.\., M, H, E\]"),
    "batch of key1": ({"key1": zeros(3, 3, 2, 6)}, r"key1: got shape \(3, 3, 2, 6\).*\(2, 3, 2, 6\)"),
    "heads of key1": ({"key1": zeros(2, 3, 1, 6)}, r"key1: got .*\(2, 3, 2, 6\)"),
    "features of key1": ({"key1": zeros(2, 3, 2, 5)}, r"key1: got .*\(2, 3, 2, 6\)"),
    "key2 of another M": ({"key2": zeros(2, 4, 2, 6)}, r"key2: got shape \(2, 4, 2, 6\).*\(2, 3, 2, 6\)"),
    "value of another M": ({"value": zeros(2, 4, 2, 4)}, r"value: got shape .*\(2, 3, 2, 4\)"),
    "bilinear of another E": ({"bilinear": zeros(2, 7, 4, 5)}, r"bilinear: got shape .*\(2, 7, 4, 4\)"),
    "rank of bilinear": ({"bilinear": zeros(7, 4, 4)}, r"bilinear: got shape \(7, 4, 4\)"),
    "integers": ({"query": jnp.zeros((2, 5, 2, 6), int)}, "query: got dtype int32, expected floating"),
    "complex": ({"value": jnp.zeros((2, 3, 2, 4), complex)}, "value: got dtype complex64"),
    "no array": ({"key2": "keys"}, "key2: got str"),
    "nothing": ({"key2": None}, "key2: got NoneType"),
    "float mask": ({"mask": zeros(2, 5, 3, 3)}, "mask: got dtype float32, expected bool"),
    "mask's shape": ({"mask": jnp.ones((2, 5, 3, 4), bool)}, r"mask: got shape \(2, 5, 3, 4\)"),
    "mask's rank": ({"mask": jnp.ones((1, 2, 5, 3, 3), bool)}, "mask: got shape"),
    "logit": ({"logit": "cosine"}, "logit: got 'cosine', expected one of 'unsigned', 'trilinear', 'signed'"),
    "scale 0": ({"scale": 0}, "scale: got 0.0, expected a finite number greater than 0"),
    "scale nan": ({"scale": float("nan")}, "scale: got nan"),
    "learned scale": ({"scale": jnp.ones(())}, "scale: got .*multiply the query"),
    "eps": ({"eps": 0.0}, "eps: got 0.0, expected a finite number greater than 0, at least 1e-15"),
    "implementation": ({"implementation": "cuda"}, r"implementation: got .*'reference', 'xla', 'gpu', 'tpu'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name):
    changes, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        two_simplicial_attention(**changed(**changes))


def test_signed_needs_pieces_of_three():
    key = zeros(3, 2, 4)
    with pytest.raises(ValueError, match="got D = 4, expected a multiple of 3"):
        two_simplicial_attention(zeros(5, 2, 4), key, key, key, zeros(2, 7, 4, 4), logit="signed")


@pytest.mark.parametrize("name", ["gpu", "tpu"])
def test_hardware_kernels_are_refused_here(name):
    """Named explicitly, a backend that cannot run here fails loudly."""
    with pytest.raises(NotImplementedError, match=rf"implementation {name!r} of .*: got "):
        two_simplicial_attention(**arguments(), implementation=name)


@pytest.mark.parametrize(
    ("logit", "batch", "mask"),
    [
        ("unsigned", (2, 3), "some batch axes"),
        ("trilinear", (2, 3), "no batch axes"),
        ("signed", (), "padding"),
    ],
)
def test_any_batch_axes(logit, batch, mask):
    """Equal to the definition on the flattened batch; a mask broadcasts over batch axes, queries and keys."""
    size = int(np.prod(batch))
    query, key1, key2, value, bilinear, _ = cases.arrays(shapes.Shape("batch", size, 2, 5, 3, 6, 4, 7))
    rng = np.random.default_rng(0)
    full = (*batch, 5, 3, 3)
    own = {
        "some batch axes": rng.random((*batch[:-1], *[1] * len(batch[-1:]), 5, 3, 3)) < 0.6,
        "no batch axes": rng.random((5, 3, 3)) < 0.6,
        "padding": rng.random((*batch, 1, 1, 3)) < 0.6,
    }[mask]
    own = jnp.asarray(own)
    q, k1, k2, v = (jnp.asarray(x).reshape(*batch, *x.shape[1:]) for x in (query, key1, key2, value))
    attend = jax.jit(two_simplicial_attention, static_argnames=("logit", "scale", "eps"))
    out = attend(q, k1, k2, v, bilinear, logit=logit, mask=own, scale=0.4, eps=0.3)
    chex.assert_shape(out, (*batch, 5, 2, 7))
    spread = np.broadcast_to(own, full).reshape(size, 5, 3, 3)
    arrays = query, key1, key2, value, bilinear, spread
    want = cases.expected(Config(logit, 0.4, 0.3), arrays, cases.cotangent(arrays)).out
    cases.check(out.reshape(want.shape), want, 1e-5)


def test_scale_and_eps_of_the_paper_are_the_defaults():
    """It has no factor, and no eps but what keeps gradients finite."""
    with mock.patch.object(api.dispatch, "run", return_value=jnp.zeros((2, 5, 2, 7))) as run:
        two_simplicial_attention(**arguments())
    assert run.call_args.args[:2] == (api.OPERATION, Config("unsigned", 1.0, 1e-6))


@pytest.mark.parametrize(
    "sizes", [(0, 2, 5, 3, 7), (2, 2, 0, 3, 7), (2, 2, 5, 0, 7), (2, 0, 5, 3, 7), (2, 2, 5, 3, 0)]
)
def test_nothing_to_attend_to_gives_zeros(sizes):
    b, h, n, m, f = sizes
    arrays = (zeros(b, n, h, 6), zeros(b, m, h, 6), zeros(b, m, h, 6), zeros(b, m, h, 4), zeros(h, f, 4, 4))
    out, pullback = jax.vjp(two_simplicial_attention, *arrays)
    np.testing.assert_array_equal(out, np.zeros((b, n, h, f)))
    for gradient, x in zip(pullback(out), arrays, strict=True):
        np.testing.assert_array_equal(gradient, np.zeros(x.shape))


def test_types_meet_in_the_widest():
    mixed = changed(query=arguments(dtype=jnp.bfloat16)["query"])
    with_gradient = jax.value_and_grad(lambda q: two_simplicial_attention(**{**mixed, "query": q}).sum())
    out, gradient = jax.eval_shape(with_gradient, mixed["query"])
    assert out.dtype == jnp.float32
    assert gradient.dtype == jnp.bfloat16
    half = arguments(dtype=jnp.bfloat16)
    assert jax.eval_shape(lambda: two_simplicial_attention(**half)).dtype == jnp.bfloat16


def loss(query, rest, implementation=None):
    return (two_simplicial_attention(query, **rest, implementation=implementation) ** 2).sum()


def split(shape=shapes.TINY, **options):
    given = {name: jnp.asarray(x) for name, x in arguments(shape, **options).items() if x is not None}
    return given.pop("query"), given


def test_under_transformations():
    """scan, and vmap over every argument, as many seeds trained side by side do."""
    query, rest = split(mask="padding")
    factors = jnp.array([1.0, 0.5, -1.0])

    def stack(x):
        return x if x.dtype == bool else factors.reshape(-1, *[1] * x.ndim) * x[None]

    axes = {name: None if name == "mask" else 0 for name in rest}

    @jax.jit
    def gradients(query, rest):
        def scanned(q):
            return jax.lax.scan(lambda c, s: (c + loss(q * s, rest), None), 0.0, jnp.ones(2))[0]

        every = jax.vmap(jax.grad(loss), (0, axes))(stack(query), jax.tree.map(stack, rest))
        return {"all": every, "scan": jax.grad(scanned)(query) / 2}

    @jax.jit
    def expected(query, rest):
        return jax.grad(lambda q, r: loss(q, r, "reference"))(query, rest)

    got = gradients(query, rest)
    of_factors = [
        expected(f * query, {n: x if n == "mask" else f * x for n, x in rest.items()}) for f in factors
    ]
    cases.check(got.pop("all"), np.asarray(jnp.stack(of_factors)), 1e-5, "all")
    for name, gradient in got.items():
        cases.check(gradient, np.asarray(of_factors[0]), 1e-5, name)


def test_one_artifact_for_all_platforms_and_any_batch():
    query, rest = split(mask="padding")
    (batch,) = export.symbolic_shape("batch")

    def symbolic(x):
        return jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype)

    bilinear = rest.pop("bilinear")
    function = jax.jit(jax.grad(lambda q, r: loss(q, {**r, "bilinear": bilinear})))
    artifact = export.export(function, platforms=["cpu", "cuda", "tpu"])(
        symbolic(query), jax.tree.map(symbolic, rest)
    )
    assert artifact.platforms == ("cpu", "cuda", "tpu")
    loaded = export.deserialize(artifact.serialize())
    three = jax.tree.map(lambda x: np.concatenate([x, x[:1]]), (query, rest))
    want = np.asarray(function(query, rest))[[0, 1, 0]]
    np.testing.assert_allclose(loaded.call(*three), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("m", [2, 3])
def test_one_artifact_for_any_number_of_queries(m):
    """As in an exported agent, where the queries of a batch of any size share few keys."""
    shape = dataclasses.replace(shapes.TINY, keys=m)
    arrays = cases.arrays(shape)[:5]
    function = jax.jit(jax.value_and_grad(lambda *x: jnp.sum(two_simplicial_attention(*x) ** 2), (0, 1, 4)))
    (batch,) = export.symbolic_shape("batch")
    query = arrays[0]
    described = jax.ShapeDtypeStruct((2, 5 * batch, *query.shape[2:]), query.dtype)
    loaded = export.deserialize(export.export(function)(described, *arrays[1:]).serialize())
    many = jnp.tile(query, (1, 30, 1, 1))
    jax.tree.map(
        lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5),
        loaded.call(many, *arrays[1:]),
        function(many, *arrays[1:]),
    )


def test_traced_once():
    query, rest = split()
    function = jax.jit(chex.assert_max_traces(lambda q, r: loss(q, r), n=1))
    for factor in (1.0, 2.0):
        function(factor * query, rest)
