"""Layers of decoders: float64 formulas, invariance of positions, causality, errors."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simplicial import layers
from simplicial.blocks import FeedForward
from simplicial.layers import DecoderBlock, RotaryAttention, SimplicialDecoder, TrilinearAttention
from tests.simplicial import numpy_agent
from tests.simplicial.small import draw, made, parameters, quickly

WIDTH = 10  # features of a position


def turned(x, period):
    """Rotary positions, coordinate by coordinate: x is [N, H, D]."""
    out = np.array(x)
    count = x.shape[-1] // period
    for i, c in np.ndindex(len(x), count):
        angle = i * 10_000 ** (-c / count)
        a, b = x[i, :, c * period], x[i, :, c * period + 1]
        out[i, :, c * period] = a * np.cos(angle) - b * np.sin(angle)
        out[i, :, c * period + 1] = a * np.sin(angle) + b * np.cos(angle)
    return out


def projected(params, name, x, heads, count):
    kernel = np.asarray(params[name]["kernel"])
    return [part.reshape(len(x), heads, -1) for part in np.split(x @ kernel, count, axis=-1)]


def trilinear(params, x, module):
    """Roy et al. (2025), Sections 4 and 5, for one sequence [N, V], triple by triple."""
    heads, groups = module.num_heads, module.num_groups
    (query,) = projected(params, "query", x, heads, 1)
    key1, key2, value1, value2 = projected(params, "keys_and_values", x, groups, 4)
    if module.logit == "signed" and module.rotary:
        query, key1, key2 = (turned(a, 3) for a in (query, key1, key2))
    scale = module.scale or 1 / np.sqrt(query.shape[-1])
    out = np.zeros_like(query)
    for i, h in np.ndindex(query.shape[:2]):
        logits, values = [], []
        for j, k in np.ndindex(len(x), len(x)):
            if module.causal and (j > i or k > i):
                continue
            if i - j >= (module.window1 or len(x)) or i - k >= (module.window2 or len(x)):
                continue
            g = h * groups // heads
            a, b, c = query[i, h], key1[j, g], key2[k, g]
            if module.logit == "trilinear":
                logits.append(scale * np.sum(a * b * c))
            else:
                pieces = np.stack([a, b, c], axis=-1).reshape(-1, 3, 3)
                logits.append(scale * np.sum(np.linalg.det(pieces)))
            values.append(value1[j, g] * value2[k, g])
        weights = np.exp(np.array(logits) - np.max(logits))
        out[i, h] = weights @ np.array(values) / weights.sum()
    return out.reshape(len(x), -1) @ np.asarray(params["output"]["kernel"])


def rotary(params, x, module):
    """Causal dot-product attention with rotary positions for one sequence [N, V], query by query."""
    heads, groups = module.num_heads, module.num_groups
    (query,) = projected(params, "query", x, heads, 1)
    key, value = projected(params, "keys_and_values", x, groups, 2)
    query, key = turned(query, 2), turned(key, 2)
    out = np.zeros_like(query)
    for i, h in np.ndindex(query.shape[:2]):
        seen, g = slice(max(0, i - (module.window or len(x)) + 1), i + 1), h * groups // heads
        weights = np.exp(key[seen, g] @ query[i, h] / np.sqrt(query.shape[-1]))
        out[i, h] = weights @ value[seen, g] / weights.sum()
    return out.reshape(len(x), -1) @ np.asarray(params["output"]["kernel"])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "fields",
    [
        {"window1": 2, "window2": 4},
        {"logit": "signed", "window1": 5, "window2": 2},
        {"logit": "signed", "rotary": False, "causal": False, "scale": 0.7},
    ],
    ids=lambda fields: "-".join(fields),
)
def test_trilinear_attention_is_the_formula(fields):
    x = draw(1, 2, 7, WIDTH)
    module = TrilinearAttention(4, 12, num_groups=2, out_features=5, param_dtype=jnp.float64, **fields)
    variables, apply = made(module, x)
    variables = jax.tree.map(lambda leaf: 2 * leaf, variables)
    for got, one in zip(apply(variables, x), x, strict=True):
        wanted = trilinear(variables["params"], one, module)
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("x64")
def test_rotary_attention_is_the_formula():
    x = draw(1, 7, WIDTH)
    module = RotaryAttention(4, 8, 2, window=3, param_dtype=jnp.float64)
    variables, apply = made(module, x)
    wanted = rotary(variables["params"], x, module)
    np.testing.assert_allclose(apply(variables, x), wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("x64")
def test_logits_depend_on_distances_only():
    """Determinants of pieces of three and products of pieces of two, of vectors at shifted positions."""
    a, b, c = jnp.asarray(draw(1, 3, 1, 1, 12))

    @quickly
    def logits(at):
        turned = [layers.rotate(x, at[i : i + 1], 3) for i, x in enumerate((a, b, c))]
        q, k1, k2 = layers.determinant_factors(*turned)
        flat = [layers.rotate(x, at[i : i + 1]) for i, x in enumerate((a, b))]
        return jnp.sum(q * k1 * k2), jnp.sum(flat[0] * flat[1])

    here, there, apart = (logits(jnp.array(at)) for at in ([0, 3, 5], [40, 43, 45], [0, 3, 6]))
    np.testing.assert_allclose(here, there, rtol=1e-9)
    assert abs(here[0] - apart[0]) > 1e-3
    pieces = np.stack([a, b, c], axis=-1).reshape(-1, 3, 3)
    np.testing.assert_allclose(logits(jnp.zeros(3, int))[0], np.linalg.det(pieces).sum(), rtol=1e-9)


def test_the_model_sees_no_future():
    """And every fourth block attends to pairs."""
    model = SimplicialDecoder(11, features=12, num_layers=4, num_heads=2, hidden=7, window1=2, window2=3)
    tokens = np.random.default_rng(0).integers(0, 11, (2, 6))
    variables, apply = made(model, tokens)
    kinds = {
        name: len(block["attention"]["keys_and_values"]["kernel"][0]) // 12
        for name, block in variables["params"].items()
        if name.startswith("block")
    }
    assert kinds == {"block_1": 2, "block_2": 2, "block_3": 2, "block_4": 4}
    changed = tokens.copy()
    changed[:, 4] = (changed[:, 4] + 1) % 11
    before, after = apply(variables, tokens), apply(variables, changed)
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert np.abs(before[:, 4:] - after[:, 4:]).min(axis=-1).max() > 1e-4
    assert before.shape == (2, 6, 11)


@pytest.mark.usefixtures("x64")
def test_the_model_is_the_formula():
    """One sequence, two blocks of groups: dot products, then determinants in windows."""
    model = SimplicialDecoder(
        11, features=12, num_layers=2, num_heads=2, num_groups=1, hidden=7, every=2, window1=2, window2=3,
        logit="signed", param_dtype=jnp.float64,
    )  # fmt: skip
    tokens = np.random.default_rng(0).integers(0, 11, 6)
    variables, apply = made(model, tokens)
    params = variables["params"]
    x = params["embedding"]["embedding"][tokens]
    attentions = (
        lambda params, x: rotary(params, x, RotaryAttention(2, 12, 1)),
        lambda params, x: trilinear(
            params, x, TrilinearAttention(2, 12, 1, window1=2, window2=3, logit="signed")
        ),
    )
    for name, attention in zip(("block_1", "block_2"), attentions, strict=True):
        block = params[name]
        x = x + attention(block["attention"], numpy_agent.layer_norm(block["attention_norm"], x))
        inner = numpy_agent.layer_norm(block["feed_forward_norm"], x)
        hidden = numpy_agent.relu(numpy_agent.dense(block["feed_forward"]["hidden"], inner))
        x = x + numpy_agent.dense(block["feed_forward"]["output"], hidden)
    wanted = numpy_agent.layer_norm(params["norm"], x) @ params["embedding"]["embedding"].T
    np.testing.assert_allclose(apply(variables, tokens), wanted, rtol=1e-9, atol=1e-9)


def test_tokens_out_of_range_give_nan():
    """Negative ones too, and in types that cannot hold the size of the vocabulary."""
    model = SimplicialDecoder(200, features=4, num_layers=1, num_heads=1, every=0, hidden=3)
    variables, apply = made(model, np.zeros(2, int))
    for dtype, tokens, known in (
        (np.int32, [199, 200], [True, False]),
        (np.int32, [1, -1], [True, False]),
        (np.int8, [127, -3], [True, False]),
        (np.uint8, [199, 255], [True, False]),
        (np.uint32, [3, 2**32 - 1], [True, False]),
    ):
        found = apply(variables, np.asarray(tokens, dtype)[:, None])[:, 0]
        np.testing.assert_array_equal(np.isfinite(found).all(axis=-1), known)
    one = SimplicialDecoder(1, features=4, num_layers=1, num_heads=1, every=0, hidden=3)
    variables, apply = made(one, np.zeros(2, int))
    np.testing.assert_array_equal(
        np.isfinite(apply(variables, np.asarray([[0], [1]])).ravel()), [True, False]
    )


def test_a_block_adds_both_sublayers():
    """With the last maps of both at 0 it returns its inputs."""
    x = draw(1, 2, 5, WIDTH)
    block = DecoderBlock(RotaryAttention(1, 4), FeedForward(7, WIDTH))
    variables = parameters(block, x)
    zero = {"attention": "output", "feed_forward": "output"}
    for at, (sublayer, layer) in enumerate(zero.items()):
        before = quickly(block.apply)(variables, x)
        assert np.abs(before - x).max() > 0.1, at
        variables["params"][sublayer][layer] = jax.tree.map(
            np.zeros_like, variables["params"][sublayer][layer]
        )
    np.testing.assert_allclose(quickly(block.apply)(variables, x), x, rtol=1e-6)


def test_bfloat16_is_near_float32():
    x = draw(1, 2, 9, WIDTH).astype(np.float32)
    module = TrilinearAttention(2, 12, num_groups=1, window1=3, window2=4, logit="signed")
    variables, apply = made(module, x)
    low = quickly(module.clone(dtype=jnp.bfloat16).apply)(variables, x)
    assert low.dtype == jnp.bfloat16
    wanted = apply(variables, x)
    assert np.linalg.norm(low.astype(np.float32) - wanted) < 0.03 * np.linalg.norm(wanted)


ERRORS = {
    "num_heads: got 3, expected a divisor of features = 8": TrilinearAttention(3, 8),
    "num_heads: got 0, expected a divisor of features = 8": RotaryAttention(0, 8),
    "num_groups: got 0, expected a divisor of num_heads = 4": TrilinearAttention(4, 8, 0),
    "num_groups: got 3, expected a divisor of num_heads = 4": TrilinearAttention(4, 8, 3),
    "logit: got 'unsigned', expected 'trilinear' or 'signed'": TrilinearAttention(1, 3).clone(
        logit="unsigned"
    ),
    "features: got D = 4, expected a multiple of 3": TrilinearAttention(2, 8, logit="signed"),
    "features: got D = 3, expected an even number": RotaryAttention(2, 6),
    "decode: got True with causal=False": TrilinearAttention(1, 3, causal=False, decode=True),
    "window2: got 2 with causal=False": TrilinearAttention(1, 3, causal=False, window2=2),
    "scale: got -1.0": TrilinearAttention(1, 3, scale=-1.0),
    "window: got 0, expected an integer of at least 1": RotaryAttention(1, 2, window=0),
    f"inputs: got shape (2, 3, {WIDTH})": DecoderBlock(RotaryAttention(1, 2), FeedForward(4, 5)),
}


def test_one_feature_is_enough():
    module = TrilinearAttention(1, 1)
    out, _ = jax.eval_shape(module.init_with_output, jax.random.key(0), jnp.zeros((2, 3, WIDTH)))
    assert out.shape == (2, 3, WIDTH)


@pytest.mark.parametrize("module", [TrilinearAttention(1, 3), RotaryAttention(1, 2)])
def test_no_vectors_are_a_sequence(module):
    out, _ = jax.eval_shape(module.init_with_output, jax.random.key(0), jnp.zeros((2, 0, WIDTH)))
    assert out.shape == (2, 0, WIDTH)


@pytest.mark.parametrize("module", [TrilinearAttention(1, 3), RotaryAttention(1, 2)])
def test_one_vector_is_no_sequence(module):
    with pytest.raises(ValueError, match=r"inputs: got shape \(5,\) and dtype float32"):
        jax.eval_shape(module.init, jax.random.key(0), jnp.zeros(5))


@pytest.mark.parametrize("message", ERRORS)
def test_errors_name_the_field(message):
    with pytest.raises(ValueError, match=re.escape(message)):
        jax.eval_shape(ERRORS[message].init, jax.random.key(0), jnp.zeros((2, 3, WIDTH)))


@pytest.mark.parametrize(
    ("fields", "tokens", "message"),
    [
        ({"every": -1}, np.zeros((1, 2), int), "every: got -1, expected an integer of at least 0"),
        ({}, np.zeros((1, 2)), "tokens: got dtype float32, expected integers"),
    ],
)
def test_errors_of_the_model(fields, tokens, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        jax.eval_shape(SimplicialDecoder(5, **fields).init, jax.random.key(0), jnp.asarray(tokens))
