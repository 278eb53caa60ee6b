"""The public function: what it refuses, shapes it accepts, transformations it is used under."""

import functools
import math
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from kernels import trilinear_attention
from kernels.trilinear import reference, shapes
from kernels.trilinear.reference import Config
from tests.kernels.trilinear import cases

pytestmark = pytest.mark.usefixtures("compiled_quickly")

NAMES = ("query", "key1", "key2", "value1", "value2")
SHAPE = shapes.SMALL[3]  # B=2, N=37, H=4, G=2, D=8
WINDOWS: dict[str, Any] = {"window1": SHAPE.window1, "window2": SHAPE.window2, "causal": True}


def arguments(**changes: Any) -> dict[str, Any]:
    arrays, _ = cases.make(SHAPE)
    return {**dict(zip(NAMES, map(jnp.asarray, arrays), strict=True)), **changes}


def zeros(*shape):
    return jnp.zeros(shape)


BAD = {
    "rank of query": ({"query": zeros(37, 8)}, r"query: got shape \(37, 8\), expected \[\.\.\., N, H, D\]"),
    "rank of key1": ({"key1": zeros(37, 8)}, r"key1: got shape \(37, 8\), expected \[\.\.\., N, G, D\]"),
    "batch of key1": ({"key1": zeros(1, 37, 2, 8)}, r"key1: got shape \(1, 37, 2, 8\).*\(2, 37, 2, 8\)"),
    "N of key1": ({"key1": zeros(2, 36, 2, 8)}, r"key1: got shape \(2, 36, 2, 8\).*\(2, 37, 2, 8\)"),
    "D of key1": ({"key1": zeros(2, 37, 2, 7)}, r"key1: got shape \(2, 37, 2, 7\).*query \(2, 37, 4, 8\)"),
    "groups": ({"key1": zeros(2, 37, 3, 8)}, "G = 3 that divides the H = 4 heads"),
    "no groups": ({"key1": zeros(2, 37, 0, 8)}, "G = 0 that divides the H = 4 heads"),
    "groups of key2": ({"key2": zeros(2, 37, 1, 8)}, r"key2: got shape \(2, 37, 1, 8\).*to match key1"),
    "value1": ({"value1": zeros(2, 37, 2, 9)}, r"value1: got shape \(2, 37, 2, 9\).*to match key1"),
    "value2": ({"value2": zeros(37, 2, 8)}, r"value2: got shape \(37, 2, 8\).*to match key1"),
    "integers": ({"key2": jnp.zeros((2, 37, 2, 8), int)}, "key2: got dtype int32, expected floating"),
    "complex": ({"value2": jnp.zeros((2, 37, 2, 8), complex)}, "value2: got dtype complex64"),
    "no array": ({"value1": None}, "value1: got NoneType"),
    "window without causal": ({"window1": 3}, "window1: got 3 with causal=False, expected causal=True"),
    "window of 0": ({"window2": 0, "causal": True}, "window2: got 0, expected at least 1"),
    "negative window": ({"window1": -1, "causal": True}, "window1: got -1"),
    "window no int": ({"window1": 2.0, "causal": True}, r"window1: got 2\.0, expected an int"),
    "window a bool": ({"window1": True, "causal": True}, "window1: got True, expected an int"),
    "causal a text": ({"causal": "False"}, "causal: got 'False', expected True or False"),
    "learned window": ({"window2": jnp.ones((), int), "causal": True}, "window2: got .*expected an int"),
    "scale": ({"scale": 0.0}, "scale: got 0.0, expected a finite number greater than 0"),
    "learned scale": ({"scale": jnp.ones(())}, "scale: got .*multiply the query"),
    "implementation": (
        {"implementation": "triton"},
        r"implementation: got .*'reference', 'xla', 'gpu', 'tpu'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name):
    changes, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        trilinear_attention(**arguments(**changes))


def test_no_features():
    with pytest.raises(ValueError, match="expected D of at least 1"):
        trilinear_attention(*[zeros(3, 2, 0)] * 5)


@pytest.mark.parametrize("name", ["gpu", "tpu"])
def test_hardware_kernels_are_refused_here(name):
    with pytest.raises(NotImplementedError, match=rf"implementation {name!r} of .*: got "):
        trilinear_attention(**arguments(), **WINDOWS, implementation=name)


@pytest.mark.parametrize("implementation", [None, "reference", "tpu_interpret"])
def test_every_implementation_computes_the_definition(implementation):
    given = arguments()
    want = cases.answers(SHAPE.config, tuple(given.values()), np.zeros(SHAPE.query))["out"]
    attend = jax.jit(lambda arrays: trilinear_attention(**arrays, **WINDOWS, implementation=implementation))
    assert cases.error(attend(given), want) < 1e-5


@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_any_batch_axes_and_the_papers_scale(batch):
    shape = shapes.Shape("", math.prod(batch), 7, 4, 2, 5, causal=False)
    arrays, _ = cases.make(shape)
    out = jax.jit(trilinear_attention)(*[x.reshape(*batch, *x.shape[1:]) for x in arrays])
    chex.assert_shape(out, (*batch, 7, 4, 5))
    want = cases.answers(Config(scale=5**-0.5), arrays, np.zeros(shape.query))["out"]
    assert cases.error(out.reshape(shape.query), want) < 1e-5


@pytest.mark.parametrize("sizes", [(0, 3, 2, 1), (2, 0, 2, 1), (2, 3, 0, 1), (2, 3, 0, 0)])
def test_nobody_attends(sizes):
    b, n, h, g = sizes
    arrays = zeros(b, n, h, 4), *[zeros(b, n, g, 4)] * 4
    out, pull = jax.vjp(trilinear_attention, *arrays)
    chex.assert_shape(out, (b, n, h, 4))
    for gradient, x in zip(pull(out), arrays, strict=True):
        np.testing.assert_array_equal(gradient, np.zeros(x.shape))


def test_types_meet_in_the_widest():
    given = arguments()
    half = given["query"].astype(jnp.bfloat16)
    with_gradient = jax.value_and_grad(lambda q: trilinear_attention(**{**given, "query": q}).sum())
    out, gradient = jax.eval_shape(with_gradient, half)
    assert out.dtype == jnp.float32
    assert gradient.dtype == jnp.bfloat16
    narrow = [x.astype(jnp.bfloat16) for x in given.values()]
    assert jax.eval_shape(trilinear_attention, *narrow).dtype == jnp.bfloat16


def loss(query, rest):
    return (trilinear_attention(query, **rest, **WINDOWS) ** 2).sum()


def split():
    given = arguments()
    return given.pop("query"), given


def test_under_vmap():
    query, rest = split()

    def by_definition(q):
        return (reference.trilinear_attention(SHAPE.config, q, *rest.values())[0] ** 2).sum()

    mapped = jax.jit(jax.vmap(jax.grad(loss), (0, None)))(jnp.stack([query, query + 1]), rest)
    want = jax.jit(jax.grad(by_definition))(query)
    np.testing.assert_allclose(mapped[0], want, rtol=1e-4, atol=1e-5)


def test_vmap_over_the_interpreted_kernel():
    given = jax.tree.map(lambda x: np.asarray(x)[:, :9], arguments())
    mapped = {name: np.stack([x, -x]) for name, x in given.items()}
    axes = dict.fromkeys(given, 0)

    def attend(arrays):
        return trilinear_attention(**arrays, **WINDOWS, implementation="tpu_interpret")

    got = jax.jit(jax.vmap(attend, (axes,)))(mapped)
    for sign, out in zip((1, -1), got, strict=True):
        arrays = tuple(sign * given[name] for name in NAMES)
        want = cases.answers(SHAPE.config, arrays, np.zeros(arrays[0].shape))["out"]
        assert cases.error(out, want) < 1e-5


def test_one_artifact_for_all_platforms_and_any_batch():
    given = arguments()
    (batch,) = export.symbolic_shape("batch")

    def gradient(arrays):
        return jax.grad(lambda a: (trilinear_attention(**a, **WINDOWS) ** 2).sum())(arrays)

    symbolic = jax.tree.map(lambda x: jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype), given)
    artifact = export.export(jax.jit(gradient), platforms=["cpu", "cuda", "tpu"])(symbolic)
    assert artifact.platforms == ("cpu", "cuda", "tpu")
    loaded = export.deserialize(artifact.serialize())
    three = jax.tree.map(lambda x: jnp.concatenate([x, x[:1]]), given)
    got, want = loaded.call(three), jax.jit(gradient)(three)
    chex.assert_trees_all_close(got, want, rtol=1e-4, atol=1e-5)


def test_forward_over_reverse():
    """A Hessian's product with a vector: the passes are plain JAX and have derivatives themselves."""
    query, rest = split()
    tangent = jnp.asarray(np.random.default_rng(5).normal(size=query.shape), jnp.float32)

    @functools.partial(jax.jit, static_argnums=0)
    def product(loss, query):
        return jax.jvp(jax.grad(loss), (query,), (tangent,))[1]

    def by_definition(q):
        return (reference.trilinear_attention(SHAPE.config, q, *rest.values())[0] ** 2).sum()

    got, want = product(lambda q: loss(q, rest), query), product(by_definition, query)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_traced_once():
    query, rest = split()
    function = jax.jit(chex.assert_max_traces(lambda q, r: loss(q, r), n=1))
    for factor in (1.0, 2.0):
        function(factor * query, rest)
