"""The Transformer and its looped form against loops in NumPy; positions, causality, masks and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.baselines import LoopedTransformer, Transformer
from experiments.baselines.transformer import T5_BUCKETS, T5_DISTANCE, rotate
from folnet.positions import t5_buckets
from tests.experiments.baselines import oracles

pytestmark = pytest.mark.usefixtures("compiled_quickly")

B, N, D, H = 2, 5, 8, 2
INPUTS = np.random.default_rng(1).normal(size=(B, N, D)).astype(np.float32)
MASK = np.array([[True] * 5, [True, True, False, True, False]])


def rotated(x, n):
    """Su et al., equation 15: a rotation matrix per pair of features."""
    size = x.shape[-1]
    matrix = np.zeros((size, size))
    for i in range(size // 2):
        angle = n * 10000 ** (-2 * i / size)
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [
            [np.cos(angle), -np.sin(angle)],
            [np.sin(angle), np.cos(angle)],
        ]
    return matrix @ x


def bucket(distance):
    """Raffel et al. (2020): for each direction 8 single distances, then 8 growing widths up to 128."""
    far = 8 + int(np.log(max(abs(distance), 1) / 8) / np.log(128 / 8) * 8 + 1e-9)
    return 16 * (distance > 0) + (abs(distance) if abs(distance) < 8 else min(far, 15))


def attention(p, x, *, mask, causal=False, rotary=False, distances=None):
    length, features = x.shape
    size = features // H
    mixed = np.zeros_like(x)
    for h in range(H):
        part = slice(h * size, (h + 1) * size)
        q, k, v = (oracles.dense(p[name], x)[:, part] for name in ("query", "key", "value"))
        if rotary:
            q, k = (np.stack([rotated(y[n], n) for n in range(length)]) for y in (q, k))
        for i in range(length):
            allowed = [j for j in range(length) if mask[j] and (j <= i or not causal)]
            if allowed:
                logits = np.array([q[i] @ k[j] / np.sqrt(size) for j in allowed])
                if distances is not None:
                    logits += [distances[bucket(j - i), h] for j in allowed]
                weights = oracles.softmax(logits)
                mixed[i, part] = sum(w * v[j] for w, j in zip(weights, allowed, strict=True))
    return oracles.dense(p["output"], mixed)


def expected(p, inputs, mask, model, num_loops=None):
    """The model's states of one example."""
    x = inputs.astype(np.float64)
    if model.positions == "learned":
        x = x + p["positions"][:N]

    def mixer(q, y):
        rotary, distances = model.positions == "rotary", p.get("distances")
        return attention(q, y, mask=mask, causal=model.causal, rotary=rotary, distances=distances)

    def stack(y):
        return oracles.layers(p["stack"], y, mixer, model.num_layers, model.norm)

    if num_loops is None:
        return stack(x)
    y = np.zeros_like(x) if model.input_injection else x
    for _ in range(num_loops):
        y = stack(y + x) if model.input_injection else stack(y)
    return y


@pytest.mark.parametrize(
    ("positions", "causal", "masked", "layers", "norm"),
    [
        ("none", False, True, 2, "pre"),
        ("rotary", True, False, 1, "pre"),
        ("learned", True, True, 1, "post"),
        ("t5", False, True, 1, "post"),
    ],
)
def test_transformer_against_numpy(positions, causal, masked, layers, norm):
    model = Transformer(layers, H, 12, norm=norm, positions=positions, max_length=6, causal=causal)
    mask = MASK if masked else np.ones((B, N), bool)
    variables = oracles.drawn(model, INPUTS)
    got = oracles.apply(model, variables, INPUTS, mask if masked else None)
    want = np.stack([expected(oracles.wide(variables), INPUTS[b], mask[b], model) for b in range(B)])
    np.testing.assert_allclose(got, want, atol=2e-5)


@pytest.mark.parametrize("input_injection", [True, False])
def test_looped_transformer_against_numpy(input_injection):
    model = LoopedTransformer(1, H, 12, positions="learned", max_length=6, input_injection=input_injection)
    variables = oracles.drawn(model, INPUTS)
    got = oracles.apply(model, variables, INPUTS, MASK, num_loops=3)
    want = np.stack([expected(oracles.wide(variables), INPUTS[b], MASK[b], model, 3) for b in range(B)])
    np.testing.assert_allclose(got, want, atol=2e-5)


def test_more_loops_continue_the_states_with_the_same_weights():
    model = LoopedTransformer(1, H, 12, num_loops=2)
    variables = oracles.drawn(model, INPUTS)
    loops = oracles.apply(model, variables, INPUTS, num_loops=5, method="loops")
    assert loops.shape == (5, B, N, D)
    np.testing.assert_allclose(loops[1], oracles.apply(model, variables, INPUTS), atol=1e-6)


def test_distances_have_the_buckets_of_t5():
    found = t5_buckets(np.arange(-200, 201), T5_BUCKETS, T5_DISTANCE)
    assert found.tolist() == [bucket(distance) for distance in range(-200, 201)]


def test_products_of_rotated_vectors_depend_on_the_distance():
    x, y = np.random.default_rng(0).normal(size=(2, 1, 1, 1, 6)).astype(np.float32)
    same = jnp.broadcast_to(jnp.asarray(x), (1, 7, 1, 6)), jnp.broadcast_to(jnp.asarray(y), (1, 7, 1, 6))
    products = np.einsum("bnhk,bmhk->nm", *map(jax.jit(rotate), same))
    for distance in range(-6, 7):
        diagonal = np.diagonal(products, distance)
        np.testing.assert_allclose(diagonal, diagonal[0], atol=1e-5)


def test_gradients():
    model = Transformer(1, H, 12, norm="post", positions="learned", max_length=N)
    oracles.finite_gradients(model, INPUTS, MASK)


def test_half_precision():
    model = Transformer(1, H, 12, positions="rotary", dtype=jnp.bfloat16)
    variables = oracles.drawn(model, INPUTS, scale=0.3)
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
    states = oracles.apply(model, variables, INPUTS.astype(jnp.bfloat16))
    assert states.dtype == jnp.bfloat16
    wide = oracles.apply(model.copy(dtype=None), variables, INPUTS)
    np.testing.assert_allclose(states.astype(np.float32), wide, atol=0.1)
    for dtype, found in ((None, jnp.float32), (jnp.bfloat16, jnp.bfloat16)):  # of wider parameters
        looped = LoopedTransformer(1, H, 12, dtype=dtype)
        inputs = jax.ShapeDtypeStruct((B, N, D), jnp.bfloat16)
        assert jax.eval_shape(looped.init_with_output, jax.random.key(0), inputs)[0].dtype == found


@pytest.mark.parametrize(
    ("fields", "arguments", "message"),
    [
        ({}, (INPUTS[0],), r"inputs: got shape \(5, 8\), expected \[B, N, D\]"),
        ({}, (INPUTS.astype(int),), "inputs: got dtype int.*, expected floating point"),
        ({}, (INPUTS, MASK[:, :3]), r"mask: got shape \(2, 3\), expected \[B, N\] = \[2, 5\]"),
        ({}, (INPUTS, MASK.astype(int)), "mask: got dtype int.*, expected bool"),
        ({"num_heads": 3}, (INPUTS,), "num_heads: got 3, expected a divisor of the features of inputs = 8"),
        ({"num_heads": 8, "positions": "rotary"}, (INPUTS,), "num_heads: got 8, expected an even number"),
        ({"num_layers": 0}, (INPUTS,), "num_layers: got 0, expected at least 1"),
        ({"hidden": 0}, (INPUTS,), "hidden: got 0, expected at least 1"),
        ({"norm": "mid"}, (INPUTS,), "norm: got 'mid', expected one of 'pre', 'post'"),
        ({"max_length": 0}, (INPUTS,), "max_length: got 0, expected at least 1"),
        (
            {"positions": "sine"},
            (INPUTS,),
            "positions: got 'sine', expected one of 'none', 'rotary', 'learned'",
        ),
        ({"positions": "learned", "max_length": 4}, (INPUTS,), "inputs: got 5 positions, expected at most"),
    ],
)
def test_refusals(fields, arguments, message):
    arguments = tuple(map(jnp.asarray, arguments))
    model = Transformer(num_layers=1, num_heads=H, hidden=4).copy(**fields)
    with pytest.raises(ValueError, match=message):
        model.init(jax.random.key(0), *arguments)


def test_no_loops_are_refused():
    with pytest.raises(ValueError, match="num_loops: got 0, expected at least 1"):
        LoopedTransformer(1, H, 4).init(jax.random.key(0), INPUTS, None, 0)
