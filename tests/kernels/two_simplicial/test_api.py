"""The public function: what it refuses, shapes it accepts, transformations it is used under."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from kernels import dispatch
from kernels.two_simplicial import shapes
from kernels.two_simplicial.api import OPERATION, two_simplicial_attention
from kernels.two_simplicial.reference import LOGITS, Config
from tests.kernels.two_simplicial import cases

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


@pytest.mark.parametrize("logit", LOGITS)
@pytest.mark.parametrize("batch", [(), (2, 3)])
@pytest.mark.parametrize("mask", [None, "full", "some batch axes", "no batch axes", "padding"])
def test_any_batch_axes(logit, batch, mask):
    """Equal to the definition on the flattened batch; a mask broadcasts over batch axes, queries and keys."""
    size = int(np.prod(batch))
    query, key1, key2, value, bilinear, _ = cases.arrays(shapes.Shape("batch", size, 2, 5, 3, 6, 4, 7))
    rng = np.random.default_rng(0)
    full = (*batch, 5, 3, 3)
    own = {
        None: None,
        "full": rng.random(full) < 0.6,
        "some batch axes": rng.random((*batch[:-1], *[1] * len(batch[-1:]), 5, 3, 3)) < 0.6,
        "no batch axes": rng.random((5, 3, 3)) < 0.6,
        "padding": rng.random((*batch, 1, 1, 3)) < 0.6,
    }[mask]
    own = None if own is None else jnp.asarray(own)
    q, k1, k2, v = (jnp.asarray(x).reshape(*batch, *x.shape[1:]) for x in (query, key1, key2, value))
    out = two_simplicial_attention(q, k1, k2, v, bilinear, logit=logit, mask=own)
    chex.assert_shape(out, (*batch, 5, 2, 7))
    spread = None if own is None else jnp.broadcast_to(own, full).reshape(size, 5, 3, 3)
    arrays = (jnp.asarray(x) for x in (query, key1, key2, value, bilinear))
    want = dispatch.run(OPERATION, Config(logit), *arrays, spread, implementation="reference")
    cases.check(out.reshape(want.shape), np.asarray(want, np.float64), 1e-5)


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


@pytest.mark.slow
def test_types_meet_in_the_widest():
    mixed = changed(query=arguments(dtype=jnp.bfloat16)["query"])
    out, pullback = jax.vjp(lambda q: two_simplicial_attention(**{**mixed, "query": q}), mixed["query"])
    assert out.dtype == jnp.float32
    assert pullback(out)[0].dtype == jnp.bfloat16
    half = arguments(dtype=jnp.bfloat16)
    assert two_simplicial_attention(**half).dtype == jnp.bfloat16


def test_permuting_pairs_and_queries():
    """Keys permuted together with their values change nothing; permuted queries permute the output."""
    given = arguments(shapes.ODD)
    out = two_simplicial_attention(**given)
    rng = np.random.default_rng(3)
    order, queries = rng.permutation(shapes.ODD.keys), rng.permutation(shapes.ODD.queries)
    moved = {name: given[name][:, order] for name in ("key1", "key2", "value")}
    got = two_simplicial_attention(**{**given, **moved, "query": given["query"][:, queries]})
    np.testing.assert_allclose(got, out[:, queries], rtol=2e-5, atol=1e-5)


def loss(query, rest, implementation=None):
    return (two_simplicial_attention(query, **rest, implementation=implementation) ** 2).sum()


def split(shape=shapes.TINY, **options):
    given = {name: jnp.asarray(x) for name, x in arguments(shape, **options).items() if x is not None}
    return given.pop("query"), given


@pytest.mark.slow
def test_under_transformations():
    """jit, vmap, checkpoint and scan: the same gradients as without."""
    query, rest = split()
    want = jax.grad(loss)(query, rest)
    got = {
        "jit": jax.jit(jax.grad(loss))(query, rest),
        "checkpoint": jax.grad(jax.checkpoint(loss))(query, rest),
        "vmap": jax.vmap(jax.grad(loss), (0, None))(jnp.stack([query, query + 1]), rest)[0],
        "scan": jax.grad(
            lambda q: jax.lax.scan(lambda c, s: (c + loss(q * s, rest), None), 0.0, jnp.ones(2))[0]
        )(query)
        / 2,
    }
    for name, gradient in got.items():
        np.testing.assert_allclose(gradient, want, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_vmap_over_parameters():
    """As many seeds trained side by side do: every argument mapped, the bilinear map too."""
    query, rest = split()
    stack = lambda x: jnp.stack([x, 0.5 * x, -x])  # noqa: E731
    got = jax.vmap(jax.grad(loss))(stack(query), jax.tree.map(stack, rest))
    for index, factor in enumerate((1, 0.5, -1)):
        want = jax.grad(loss)(factor * query, jax.tree.map(lambda x: factor * x, rest))  # noqa: B023
        np.testing.assert_allclose(got[index], want, rtol=1e-4, atol=1e-5)


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
    np.testing.assert_allclose(loaded.call(query, rest), function(query, rest), rtol=1e-5, atol=1e-6)
    three = jax.tree.map(lambda x: jnp.concatenate([x, x[:1]]), (query, rest))
    np.testing.assert_allclose(loaded.call(*three)[2], function(query, rest)[0], rtol=1e-5, atol=1e-6)


def test_traced_once():
    query, rest = split()
    function = jax.jit(chex.assert_max_traces(lambda q, r: loss(q, r), n=1))
    for factor in (1.0, 2.0):
        function(factor * query, rest)
