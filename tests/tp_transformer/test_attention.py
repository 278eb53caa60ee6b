"""TP-attention: equations, compatibility with flax's attention, masks, dtypes, errors."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from tests.tp_transformer import plain
from tests.tp_transformer.small import products, quickly
from tp_transformer import MultiHeadAttention, TPMultiHeadAttention
from tp_transformer.attention import dot_product_weights, single_query_fillers

pytestmark = pytest.mark.usefixtures("compiled_quickly")

HEADS = 2


def cells(*shape, seed=0):
    """Draws standard normal cells of a given shape."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def drawn(module, *inputs):
    """Draws parameters from N(0, 1/2)."""
    shapes = jax.eval_shape(module.init, jax.random.key(0), *inputs)["params"]
    rng = np.random.default_rng(7)
    return jax.tree.map(lambda x: (0.7 * rng.normal(size=x.shape)).astype(x.dtype), shapes)


def by_equations(params, query, context, allowed, values=None):
    """Evaluates equations (3) to (6) for one sequence in float64."""
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), params)

    def heads(name, x):
        return (np.asarray(x, np.float64) @ params[name]["kernel"] + params[name]["bias"]).reshape(
            len(x), HEADS, -1
        )

    q, k, v = (
        heads("query", query),
        heads("key", context),
        heads("value", context if values is None else values),
    )
    r = heads("role", query) if "role" in params else [None] * len(query)
    matrix = params["output"]["kernel"].T
    matrix = matrix.reshape(len(matrix), HEADS, -1)
    return [
        plain.attention(q[t], k, v, r[t], matrix, allowed[t]) + params["output"]["bias"]
        for t in range(len(query))
    ]


@pytest.mark.parametrize("attention", [TPMultiHeadAttention, MultiHeadAttention])
def test_the_equations(attention):
    """Cross-attention to cells of other widths, with two batch axes and a separate mask for each."""
    module = attention(HEADS, qkv_features=6, out_features=5)
    query, context, values = cells(2, 3, 4, 8), cells(2, 3, 5, 7, seed=1), cells(2, 3, 5, 9, seed=3)
    mask = np.random.default_rng(2).random((2, 3, 1, 4, 5)) < 0.6
    mask[..., 0] = True
    params = drawn(module, query, context, values)
    out = quickly(module.apply)({"params": params}, query, context, values, mask=jnp.asarray(mask))
    assert out.shape == (2, 3, 4, 5)
    for b in np.ndindex(2, 3):
        want = by_equations(params, query[b], context[b], mask[b][0], values[b])
        np.testing.assert_allclose(out[b], want, rtol=1e-4, atol=1e-5)


def test_it_drops_in_for_flax():
    """The same call and defaults work; with roles of 1 the outputs are equal."""
    theirs: Any = nn.MultiHeadDotProductAttention(num_heads=HEADS)
    ours: Any = TPMultiHeadAttention(num_heads=HEADS)
    x = cells(3, 5, 8)
    real = np.ones((3, 5), bool)
    real[0, 3:] = False
    mask = (real[:, :, None] & real[:, None])[:, None]
    params = drawn(ours, x)
    params["role"] = {"kernel": np.zeros((8, 8), np.float32), "bias": np.ones(8, np.float32)}
    flax = {
        name: {
            "kernel": params[mine]["kernel"].reshape((8, HEADS, 4) if name != "out" else (HEADS, 4, 8)),
            "bias": params[mine]["bias"].reshape((HEADS, 4) if name != "out" else (8,)),
        }
        for name, mine in (("query", "query"), ("key", "key"), ("value", "value"), ("out", "output"))
    }
    want = quickly(theirs.apply)({"params": flax}, x, x, mask=mask)
    got = quickly(ours.apply)({"params": params}, x, x, mask=mask)
    np.testing.assert_allclose(got[0, :3], want[0, :3], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[1:], want[1:], rtol=1e-4, atol=1e-5)


def test_roles_come_from_the_query():
    """Another context leaves the roles unchanged; doubling the roles' maps doubles the binding."""
    module: Any = TPMultiHeadAttention(HEADS)
    query = cells(1, 3, 8)
    params = drawn(module, query)
    seen = quickly(functools.partial(module.apply, mutable=["intermediates"]))
    contexts = [cells(1, 4, 8, seed=seed) for seed in (1, 2)]
    (once, first), (_, second) = (seen({"params": params}, query, context) for context in contexts)
    first, second = first["intermediates"], second["intermediates"]
    np.testing.assert_array_equal(first["roles"][0], second["roles"][0])
    assert np.max(np.abs(np.subtract(first["weights"][0], second["weights"][0]))) > 0.05
    twice = {**params, "role": jax.tree.map(lambda x: 2 * x, params["role"])}
    double, _ = seen({"params": twice}, query, contexts[0])
    bias = params["output"]["bias"]
    np.testing.assert_allclose(np.asarray(double) - bias, 2 * (np.asarray(once) - bias), rtol=1e-4, atol=1e-5)


def test_causal_and_masked_weights():
    """Rows sum to 1 over positions that both order and mask allow; other weights are 0."""
    query, key = cells(2, 4, HEADS, 3), cells(2, 4, HEADS, 3, seed=1)
    mask = np.ones((2, 1, 1, 4), bool)
    mask[0, ..., 1] = False
    weights = np.asarray(quickly(functools.partial(dot_product_weights, is_causal=True))(query, key, mask))
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
    np.testing.assert_array_equal(
        weights[np.broadcast_to(np.triu(np.ones((4, 4), bool), 1), weights.shape)], 0
    )
    np.testing.assert_array_equal(weights[0, ..., 1], 0)


def test_a_single_query_needs_no_matrix_products():
    """With a cache's keys and values, only the maps are products; those of attention have batch axes."""
    module: Any = TPMultiHeadAttention(HEADS)
    query, kept = cells(3, 1, 8), cells(3, 5, HEADS, 4, seed=1)
    variables = {"params": drawn(module, query)}
    batched = []
    for queries in (1, 2):
        attend = functools.partial(module.apply, method="attend")
        traced = jax.make_jaxpr(attend)(variables, jnp.tile(query, (1, queries, 1)), kept, kept)
        batched.append(sum(bool(eqn.params["dimension_numbers"][1][0]) for eqn in products(traced.jaxpr)))
    assert batched == [0, 2]


def test_weights_of_rounded_cells_are_not_rounded():
    """In float32 for bfloat16 and in float64 for float64, against a float64 loop over heads and queries."""
    with jax.enable_x64(True):
        for dtype, wide, error in ((jnp.bfloat16, jnp.float32, 1e-5), (jnp.float64, jnp.float64, 1e-12)):
            query, key = (cells(2, n, HEADS, 24, seed=n).astype(dtype) for n in (3, 5))
            weights = quickly(dot_product_weights)(query, key)
            assert weights.dtype == wide
            for b, h, t in np.ndindex(2, HEADS, 3):
                logits = np.asarray(key[b, :, h], np.float64) @ np.asarray(query[b, t, h], np.float64)
                want = plain.softmax(logits / np.sqrt(24))
                np.testing.assert_allclose(weights[b, h, t], want, rtol=error)


def test_a_single_querys_logits_are_not_rounded():
    """In bfloat16 257 and 256 are one number; their weights must differ as exp(1 / 2) and 1."""
    query = jnp.asarray([16.0, 1, 0, 0], jnp.bfloat16).reshape(1, 1, 1, 4)
    keys = jnp.asarray([[16.0, 1, 0, 0], [16, 0, 0, 0]], jnp.bfloat16).reshape(1, 2, 1, 4)
    values = jnp.asarray([[1.0] * 4, [0] * 4], jnp.bfloat16).reshape(1, 2, 1, 4)
    found = quickly(single_query_fillers)(query, keys, values)
    np.testing.assert_allclose(found.astype(jnp.float32), 1 / (1 + np.exp(-0.5)), rtol=4e-3)


@pytest.mark.parametrize(
    ("dtype", "masked"), [(jnp.float32, None), (jnp.float32, (3, 1, 1, 5)), (jnp.bfloat16, (1, 1, 5))]
)
def test_a_single_query_gets_what_one_of_many_gets(dtype, masked):
    """Sums and JAX's products agree for masks of any rank; in bfloat16 both round the weights."""
    query, keys, values = (cells(3, n, HEADS, 4, seed=n).astype(dtype) for n in (1, 5, 5))
    mask = None if masked is None else np.random.default_rng(0).random(masked) < 0.6
    found = quickly(single_query_fillers)(query, keys, values, mask)
    broadcast = None if mask is None else mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    want = quickly(jax.nn.dot_product_attention)(query, keys, values, mask=broadcast)
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found.astype(jnp.float32), want.astype(jnp.float32), atol=1e-6 if dtype == jnp.float32 else 2e-2
    )


@pytest.mark.parametrize("is_causal", [False, True])
def test_plain_sight_and_jax_agree(is_causal):
    """Explicit weights, enabled here by a tiny dropout rate, give the same output as JAX's function."""
    module: Any = TPMultiHeadAttention(HEADS)
    x = cells(2, 5, 8)
    params, mask = drawn(module, x), np.ones((2, 1, 1, 5), bool)
    mask[1, ..., 0] = False
    usual = quickly(module.apply, static_argnames="is_causal")(
        {"params": params}, x, mask=mask, is_causal=is_causal
    )
    dropping: Any = TPMultiHeadAttention(HEADS, dropout_rate=1e-12)
    options = {"is_causal": is_causal, "deterministic": False}
    seen = quickly(functools.partial(dropping.apply, **options))(
        {"params": params}, x, mask=mask, rngs={"dropout": jax.random.key(0)}
    )
    np.testing.assert_allclose(seen, usual, rtol=1e-4, atol=1e-5)
    if is_causal:  # a single query is the first, with nothing before it
        single = quickly(functools.partial(module.apply, is_causal=True))
        first = single({"params": params}, np.asarray(x)[:, :1], x)
        np.testing.assert_allclose(first[0], usual[0, :1], rtol=1e-4, atol=1e-5)
    if is_causal:  # the first query of row 1 may attend to nothing
        np.testing.assert_array_equal(usual[1, 0], params["output"]["bias"])


@pytest.mark.parametrize(
    ("queries", "dropout_rate", "whole"),
    [(1, 0.0, False), (4, 0.0, True), (4, 0.0, False), (4, 1e-12, False)],
)
def test_a_query_that_may_attend_to_nothing_retrieves_0(queries, dropout_rate, whole):
    """Holds for a single query, JAX's function and explicit weights, for masks of any rank; no gradient.

    The mask is False as a whole, or for the first row of the batch.
    """
    module: Any = MultiHeadAttention(HEADS, dropout_rate=dropout_rate)
    query, context = cells(2, queries, 8), cells(2, 5, 8, seed=1)
    params = drawn(module, query, context)

    def attend(query, mask):
        rngs = {"dropout": jax.random.key(0)}
        return module.apply({"params": params}, query, context, mask=mask, deterministic=False, rngs=rngs)

    @quickly
    def both(query, mask):
        out, back = jax.vjp(lambda query: attend(query, mask), query)
        return out, back(jnp.ones_like(out))[0]

    mask = np.zeros(5, bool) if whole else np.arange(2).reshape(2, 1, 1, 1) * np.ones(5, bool) > 0
    out, back = jax.device_get(both(query, mask))
    nothing = slice(None) if whole else slice(1)
    bias = params["output"]["bias"]
    np.testing.assert_array_equal(out[nothing], np.broadcast_to(bias, out[nothing].shape))
    np.testing.assert_array_equal(back[nothing], 0)
    if not whole:
        for t in range(queries):
            want = by_equations(params, query[1, t : t + 1], context[1], np.ones((1, 5), bool))
            np.testing.assert_allclose(out[1, t], want[0], rtol=1e-4, atol=1e-5)
        assert np.min(np.max(np.abs(back[1]), axis=-1)) > 1e-3


@pytest.mark.parametrize("is_causal", [False, True])
def test_cudnn_takes_it(monkeypatch, is_causal):
    """Lowering for an NVIDIA GPU, without one, calls cuDNN with a broadcast mask."""
    fused = pytest.importorskip("jax._src.cudnn.fused_attention_stablehlo")
    monkeypatch.setattr(fused, "check_cudnn_version", lambda: 91100)
    monkeypatch.setattr(fused, "check_compute_capability", lambda capability: True)
    x, mask = cells(2, 6, 16), jnp.ones((2, 1, 1, 6), bool)
    module: Any = TPMultiHeadAttention(HEADS, implementation="cudnn", dtype=jnp.bfloat16)
    params = drawn(TPMultiHeadAttention(HEADS), x)

    def loss(params, queries=6, mask=mask):
        out = module.apply({"params": params}, x[:, :queries], x, mask=mask, is_causal=is_causal)
        return jnp.sum(out.astype(jnp.float32))

    text = jax.jit(jax.grad(loss)).trace(params).lower(lowering_platforms=("cuda",)).as_text()
    assert "__cudnn$fmha" in text
    assert "__cudnn$fmhaScaleBiasSoftmaxBackward" in text
    single = jax.jit(functools.partial(loss, queries=1)).trace(params).lower(lowering_platforms=("cuda",))
    assert "__cudnn$fmha" in single.as_text()
    free = jax.jit(functools.partial(loss, mask=None)).trace(params).lower(lowering_platforms=("cuda",))
    assert "__cudnn$fmha" in free.as_text()


def test_bfloat16_and_types():
    """bfloat16 products of float32 parameters are accurate to bfloat16's precision."""
    x = cells(2, 5, 8)
    module: Any = TPMultiHeadAttention(HEADS, dtype=jnp.bfloat16)
    params = drawn(module, x)
    want = [by_equations(params, row, row, np.ones((5, 5), bool)) for row in x]
    assert jax.eval_shape(TPMultiHeadAttention(HEADS).apply, {"params": params}, x).dtype == jnp.float32
    got = quickly(module.apply)({"params": params}, x)
    assert got.dtype == jnp.bfloat16
    assert 0 < np.max(np.abs(np.asarray(got, np.float32) - want)) < 0.05 * np.max(np.abs(want))


def test_without_biases():
    """With `use_bias=False` the parameters contain no bias."""
    x = cells(1, 3, 8)
    params = drawn(TPMultiHeadAttention(HEADS, use_bias=False), x)
    assert set(params) == {"query", "key", "value", "role", "output"}
    assert all(set(maps) == {"kernel"} for maps in params.values())


def test_what_is_refused():
    """Errors name the argument."""
    x = np.asarray(cells(2, 3, 8))
    module: Any = TPMultiHeadAttention(HEADS)
    variables = {"params": drawn(module, x)}
    refused: tuple[Any, ...] = (
        ((x.astype(np.int32),), {}, "inputs_q: got shape .* int32"),
        ((x[0, 0],), {}, "inputs_q: got shape"),
        ((x, x[..., None]), {}, r"inputs_k: got shape \(2, 3, 8, 1\), .* one or two more"),
        ((x, x[:1]), {}, r"inputs_k: got shape \(1, 3, 8\), expected leading axes \(2,\)"),
        ((x, x, x[:, :2]), {}, r"inputs_v: got shape \(2, 2, 8\), expected leading axes \(2, 3\)"),
        ((x[:, :0],), {}, r"inputs_q: got shape \(2, 0, 8\), expected at least one position"),
        ((x, x[:, :0]), {}, r"inputs_k: got shape \(2, 0, 8\), expected at least one position"),
        ((x,), {"mask": np.ones((3, 4), bool)}, r"mask: got shape \(3, 4\)"),
        ((x,), {"mask": np.ones((2, 1, 3, 3), np.float32)}, "mask: got dtype float32, expected bool"),
        ((x,), {"mask": np.ones((2, 1, 3, 4), bool)}, r"broadcasts to \[\*B, H, T, S\] = \(2, 2, 3, 3\)"),
    )
    for arguments, options, message in refused:
        with pytest.raises(ValueError, match=message):
            jax.eval_shape(functools.partial(module.apply, variables, **options), *arguments)
    split: Any = x.reshape(2, 3, 2, 4)
    added: Any = np.full(
        (2, 2, 3, 3), -1e9, np.float32
    )  # meant to be added to the logits; true where it excludes
    for causal in (False, True):
        with pytest.raises(ValueError, match="mask: got dtype float32, expected bool"):
            dot_product_weights(split, split, added, is_causal=causal)
    with pytest.raises(ValueError, match="mask: got dtype float32, expected bool"):
        single_query_fillers(split[:, :1], split, split, added[..., :1, :])
    for heads in (3, 0):
        with pytest.raises(ValueError, match=f"num_heads: got {heads}, expected a divisor of 8"):
            TPMultiHeadAttention(heads).init(jax.random.key(0), x)
    one: Any = TPMultiHeadAttention(1)  # head, and cells without a batch
    assert jax.eval_shape(one.init_with_output, jax.random.key(0), x[0])[0].shape == (3, 8)
