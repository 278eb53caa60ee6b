"""Attention compared with loops over the formula of Shaw et al. (2018), in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet.transformer_attention import SelfAttention, attention, pair_vectors
from folnet.transformer_configuration import TransformerConfig
from tests.folnet import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

BATCH, LENGTH, HEADS, SIZE = 2, 5, 3, 4
DISTANCE, RELATIONS = 2, 6


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape)


QUERY, KEY, VALUE = (normal(BATCH, LENGTH, HEADS, SIZE, seed=seed) for seed in range(3))
BIAS = normal(1, HEADS, LENGTH, LENGTH)
MASK = np.arange(LENGTH)[None, None, None, :] < np.asarray([LENGTH, 3])[:, None, None, None]


def looped(bias=None, keys=None, values=None, mask=None, kernel_weights=None):
    """Computes z_h(x) one number at a time; `kernel_weights` multiply the softmax, as dropout does."""
    out = np.zeros((BATCH, LENGTH, HEADS, SIZE))
    for b in range(BATCH):
        for h in range(HEADS):
            for x in range(LENGTH):
                scores = np.full(LENGTH, -np.inf)
                for a in range(LENGTH):
                    if mask is not None and not mask[b, 0, 0, a]:
                        continue
                    key = KEY[b, a, h] + (0 if keys is None else keys[b % len(keys), :, x, a])
                    scores[a] = QUERY[b, x, h] @ key / np.sqrt(SIZE)
                    scores[a] += 0 if bias is None else bias[0, h, x, a]
                kernel = np.exp(scores - scores.max())
                kernel /= kernel.sum()
                if kernel_weights is not None:
                    kernel = kernel * kernel_weights[b, h, x]
                for a in range(LENGTH):
                    value = VALUE[b, a, h] + (0 if values is None else values[b % len(values), :, x, a])
                    out[b, x, h] += kernel[a] * value
    return out


@functools.cache
def compiled(dropped=False):
    weights = jnp.asarray(WEIGHTS, jnp.float32)
    dropout = (lambda kernel: kernel * weights) if dropped else None
    return small.quickly(functools.partial(attention, dropout=dropout))


WEIGHTS = 2.0 * (normal(BATCH, HEADS, LENGTH, LENGTH, seed=9) > 0)


@pytest.mark.parametrize(
    ("batch", "mask", "dropped"), [(1, None, False), (1, MASK, True), (2, MASK, False), (2, None, True)]
)
def test_attention_is_its_formula(batch, mask, dropped):
    """With vectors of pairs (shared by the batch or not), a bias, padding and dropped weights."""
    keys, values = (normal(batch, SIZE, LENGTH, LENGTH, seed=seed) for seed in (3, 4))
    given = {"bias": BIAS, "relation_keys": keys, "relation_premise": values}
    given = {name: jnp.asarray(array, jnp.float32) for name, array in given.items()}
    args = [jnp.asarray(array, jnp.float32) for array in (QUERY, KEY, VALUE)]
    ours = compiled(dropped)(*args, **given, mask=None if mask is None else jnp.asarray(mask))
    expected = looped(BIAS, keys, values, mask, WEIGHTS if dropped else None)
    np.testing.assert_allclose(ours, expected, atol=2e-6)


@pytest.mark.parametrize(
    ("mask", "dropped", "bias"),
    [(None, False, BIAS), (MASK, False, None), (MASK, False, BIAS), (MASK, True, None), (None, True, BIAS)],
)
def test_plain_attention_is_its_formula(mask, dropped, bias):
    """Without vectors of pairs."""
    args = [jnp.asarray(array, jnp.float32) for array in (QUERY, KEY, VALUE)]
    ours = compiled(dropped)(
        *args,
        bias=None if bias is None else jnp.asarray(bias, jnp.float32),
        mask=None if mask is None else jnp.asarray(mask),
    )
    np.testing.assert_allclose(
        ours, looped(bias, mask=mask, kernel_weights=WEIGHTS if dropped else None), atol=2e-6
    )


def test_vectors_of_pairs():
    """The row of the clipped distance plus those of all relations of a pair."""
    table = normal(2 * DISTANCE + 1 + RELATIONS, SIZE)
    counts = np.random.default_rng(0).integers(0, 3, (BATCH, RELATIONS, LENGTH, LENGTH))
    expected = np.zeros((BATCH, SIZE, LENGTH, LENGTH))
    for x in range(LENGTH):
        for y in range(LENGTH):
            distance = min(max(y - x, -DISTANCE), DISTANCE)
            for b in range(BATCH):
                expected[b, :, x, y] = table[DISTANCE + distance]
                for relation in range(RELATIONS):
                    row = table[2 * DISTANCE + 1 + relation]
                    expected[b, :, x, y] += counts[b, relation, x, y] * row

    @small.quickly
    def run(table, counts):
        distances = pair_vectors(table, LENGTH, DISTANCE, None)
        relations = pair_vectors(table[2 * DISTANCE + 1 :], LENGTH, None, counts)
        return pair_vectors(table, LENGTH, DISTANCE, counts), distances, relations

    both, distances, relations = run(table.astype(np.float32), counts.astype(np.float32))
    np.testing.assert_allclose(both, expected, atol=1e-5)
    # Neither needs the other.
    assert distances.shape == (1, SIZE, LENGTH, LENGTH)
    np.testing.assert_allclose(np.asarray(distances) + np.asarray(relations), expected, atol=1e-5)


@pytest.mark.parametrize("pairs", [True, False])
def test_the_type_of_the_features_is_kept(pairs):
    """A bias is a parameter, and may be of another type."""
    half = [jax.ShapeDtypeStruct(array.shape, jnp.bfloat16) for array in (QUERY, KEY, VALUE)]
    vectors = {"relation_keys": jnp.zeros((1, SIZE, LENGTH, LENGTH), jnp.bfloat16)} if pairs else {}
    run = functools.partial(attention, bias=jnp.asarray(BIAS, jnp.float32), **vectors)
    assert jax.eval_shape(run, *half).dtype == jnp.bfloat16


def test_vectors_of_pairs_take_the_type_of_the_features():
    config = TransformerConfig(hidden_size=SIZE, num_attention_heads=HEADS, relative_position="shaw")
    features = jax.ShapeDtypeStruct((BATCH, LENGTH, SIZE), jnp.bfloat16)
    run = functools.partial(SelfAttention(config).init_with_output, deterministic=True)
    out, drawn = jax.eval_shape(lambda x: run(jax.random.key(0), x, None, None, None), features)
    assert out.dtype == jnp.bfloat16
    assert drawn["params"]["pair_keys"].dtype == jnp.float32


def test_no_token_to_attend_to():
    """Nothing is taken, as the weights say."""
    args = [jnp.asarray(array, jnp.float32) for array in (QUERY, KEY, VALUE)]
    mask = np.array(MASK)
    mask[1] = False
    found = np.asarray(compiled()(*args, mask=jnp.asarray(mask)))
    np.testing.assert_allclose(found[0], looped(mask=MASK)[0], atol=2e-6)
    assert not found[1].any()


def test_float64_is_computed_in_float64(x64):
    found = small.quickly(attention)(*map(jnp.asarray, (QUERY, KEY, VALUE)))
    np.testing.assert_allclose(found, looped(), atol=1e-12)
