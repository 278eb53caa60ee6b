"""Base atoms: what is added, where, and in which dtype."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet import positions
from folnet.embeddings import Embeddings, relation_counts
from tests.folnet import known_dropout, small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

IDS, TYPES = small.tokens()
LENGTH = IDS.shape[1]
AT = jnp.arange(LENGTH)


EPS = 0.1


def normalized(x):
    """Normalizes over the last axis in float64."""
    x = np.asarray(x, np.float64)
    x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + EPS)


def shapes(module):
    """Returns the shapes of a module's parameters."""
    return jax.eval_shape(lambda key: module.init(key, IDS, TYPES), jax.random.key(0))["params"]


def run(config, **atoms):
    """Returns atoms and tables."""
    module = Embeddings(config)
    ids = atoms.pop("input_ids", IDS)
    params = small.draw_like(shapes(module), scale=1)
    unary, relation = small.quickly(lambda p: small.apply(module, p, ids, TYPES, **atoms))(params)
    return unary, np.moveaxis(np.asarray(relation, np.float64), 1, -1), jax.device_get(params)


def config_with(**fields):
    """Returns small settings with an epsilon that shows."""
    return small.config(layer_norm_eps=EPS, **fields)


@functools.cache
def numbers(distance):
    """Returns the ids of relative positions."""
    return np.asarray(small.quickly(lambda at: positions.relative_ids(at, at, TYPES, TYPES, distance))(AT))


def relative(params, config):
    return params["relative"][numbers(config.max_distance)]


def test_words_types_and_relative_positions():
    """The paper's base atoms (10)."""
    config = config_with()
    unary, relation, params = run(config)
    assert set(params) == {"word", "type", "relative"}
    np.testing.assert_allclose(unary, normalized(params["word"][IDS] + params["type"][TYPES]), atol=1e-5)
    np.testing.assert_allclose(relation, normalized(relative(params, config)), atol=1e-5)


def test_absolute_positions_alone():
    """Binary base atoms are zeros, also after normalization."""
    unary, relation, params = run(config_with(relative_position="none", absolute_position=True))
    assert set(params) == {"word", "type", "position"}
    assert params["position"].shape[0] == 512
    want = params["word"][IDS] + params["type"][TYPES] + params["position"][None, :LENGTH]
    np.testing.assert_allclose(unary, normalized(want), atol=1e-5)
    assert not relation.any()


def test_buckets():
    """T5's, the same for each text."""
    config = config_with(
        relative_position="t5", relative_attention_num_buckets=8, relative_attention_max_distance=5
    )
    _, relation, params = run(config)
    offsets = np.arange(LENGTH)[None] - np.arange(LENGTH)[:, None]
    want = np.asarray(params["relative"])[positions.t5_buckets(offsets, 8, 5)]
    np.testing.assert_allclose(relation, normalized(np.stack([want, want])), atol=1e-5)


@pytest.mark.parametrize("several", [True, False])
def test_relations_by_number(several):
    """One or several per pair, -1 for none, added to the relative positions."""
    config = config_with(relation_vocab_size=4)
    ids = np.random.default_rng(0).integers(-1, 4, (2, LENGTH, LENGTH, 3))
    ids[0, 0, 0] = -1
    ids[0, 0, 1] = 2  # thrice
    given = jnp.asarray(ids if several else ids[..., 0])
    _, relation, params = run(config, relation_ids=given)
    rows = np.concatenate((np.asarray(params["relation"]), np.zeros((1, config.relation_size))))
    added = rows[ids].sum(axis=-2) if several else rows[ids[..., 0]]
    np.testing.assert_allclose(relation, normalized(relative(params, config) + added), atol=1e-5)


def test_more_relations_than_numbers_of_a_narrow_type():
    counts = relation_counts(jnp.asarray([[[[-1, 2]]]], jnp.int8), 200)
    assert np.argwhere(counts).tolist() == [[0, 2, 0, 0]]


def test_atoms_as_vectors():
    """Both kinds are added before normalization; properties can replace the words."""
    config = config_with()
    rng = np.random.default_rng(0)
    more = rng.normal(size=(2, LENGTH, config.hidden_size)).astype(np.float32)
    pairs = rng.normal(size=(2, LENGTH, LENGTH, config.relation_size)).astype(np.float32)
    unary, relation, params = run(config, inputs_embeds=jnp.asarray(more), relation_embeds=jnp.asarray(pairs))
    both = params["word"][IDS] + params["type"][TYPES] + more
    np.testing.assert_allclose(unary, normalized(both), atol=1e-5)
    np.testing.assert_allclose(relation, normalized(relative(params, config) + pairs), atol=1e-5)
    unary, _, params = run(config, input_ids=None, inputs_embeds=jnp.asarray(more))
    np.testing.assert_allclose(unary, normalized(params["type"][TYPES] + more), atol=1e-5)


def test_the_diagonal_link():
    """A token's properties before normalization are added to its pair with itself."""
    config = config_with(diagonal_link=True)
    _, relation, params = run(config)
    linked = (params["word"][IDS] + params["type"][TYPES]) @ params["diagonal"]["weight"]
    linked = np.asarray(linked) + np.asarray(params["diagonal"]["bias"])
    want = relative(params, config)
    want[:, np.arange(LENGTH), np.arange(LENGTH)] += linked
    np.testing.assert_allclose(relation, normalized(want), atol=2e-5)


def test_the_type_of_the_computation():
    """Atoms are rounded to bfloat16 once, after normalization in float32."""
    config = config_with()
    single, half = (run(config.replace(dtype=name))[:2] for name in ("float32", "bfloat16"))
    for want, got in zip(single, half, strict=True):
        want, got = np.asarray(want, np.float64), np.asarray(got, np.float64)
        assert (np.abs(got - want) <= 0.501 * 2.0**-7 * 2 ** np.floor(np.log2(np.abs(want) + 1e-30))).all()
    assert half[0].dtype == jnp.bfloat16


def test_dropout_of_base_atoms():
    """Both kinds drop after normalization, each by its own key."""
    config = config_with(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3)
    module = Embeddings(config)
    params = small.draw_like(shapes(module), scale=1)

    @small.quickly
    def both(params):
        with known_dropout.known():
            rngs = {"dropout": small.key()}
            dropped = small.apply(module, params, IDS, TYPES, deterministic=False, rngs=rngs)
        return dropped, small.apply(module, params, IDS, TYPES)

    dropped, plain = both(params)
    for got, want in zip(dropped, map(np.asarray, plain), strict=True):
        np.testing.assert_allclose(got, want * known_dropout.weights(0.2, want.shape), rtol=1e-6)

    def draw(key):
        return small.apply(module, params, IDS, TYPES, deterministic=False, rngs={"dropout": key})

    assert known_dropout.trace(draw) == {(0.2, atoms.shape): 1 for atoms in plain}


def test_initial_tables():
    """All are drawn with the range of the settings, each by its own key."""
    config = config_with(
        initializer_range=0.5,
        vocab_size=400,
        type_vocab_size=300,
        absolute_position=True,
        relation_vocab_size=500,
        relation_size=14,
        max_distance=200,
    )
    init = small.quickly(lambda key: Embeddings(config).init(key, IDS, TYPES))
    params = jax.device_get(init(small.key()))["params"]
    sizes = {"word": 400, "type": 300, "position": 512, "relative": 402, "relation": 500}
    assert {name: leaf.shape for name, leaf in params.items()} == {n: (c, 14) for n, c in sizes.items()}
    for table in params.values():
        assert abs(float(table.std()) - 0.5) < 0.03
    assert len({float(table[0, 0]) for table in params.values()}) == len(sizes)


def test_positions_may_start_anywhere():
    """Tokens of texts of different lengths, each continued at its own position."""
    module = Embeddings(config_with(absolute_position=True, max_position_embeddings=12))
    params = small.draw_like(shapes(module), scale=1)

    def properties(start) -> Any:
        return module.apply({"params": params}, IDS, TYPES, start, method="properties")

    table = {name: np.asarray(leaf) for name, leaf in params.items()}
    want = table["word"][IDS] + table["type"][TYPES]
    np.testing.assert_allclose(
        small.quickly(lambda: properties(None))(), want + table["position"][None, :LENGTH], atol=1e-6
    )
    places = np.asarray([[2], [5]]) + np.arange(LENGTH)[None]
    np.testing.assert_allclose(
        small.quickly(properties)(np.asarray([2, 5], np.int32)), want + table["position"][places], atol=1e-6
    )


def test_logits_are_sums_in_float32():
    """Products of bfloat16 numbers are not rounded to bfloat16."""
    module = Embeddings(config_with(dtype="bfloat16"))
    params = small.draw_like(shapes(module), scale=1)
    unary = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 14)), jnp.bfloat16)
    got: Any = small.quickly(lambda p: module.apply({"params": p}, unary, method="logits"))(params)
    assert got.dtype == jnp.float32
    word = np.asarray(params["word"]).astype(jnp.bfloat16).astype(np.float64)
    np.testing.assert_allclose(got, np.asarray(unary, np.float64) @ word.T, atol=1e-5)
