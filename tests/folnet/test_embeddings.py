"""Base atoms: what is added, where, and in which dtype."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet import positions
from folnet.embeddings import Embeddings
from tests.folnet import small

IDS, TYPES = small.tokens()
LENGTH = IDS.shape[1]


def normalized(x):
    """Normalizes over the last axis in float64."""
    x = np.asarray(x, np.float64)
    x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + 1e-12)


def shapes(module):
    """Returns the shapes of a module's parameters."""
    return jax.eval_shape(lambda key: module.init(key, IDS, TYPES), jax.random.key(0))["params"]


def run(config, **atoms):
    """Returns atoms and tables."""
    module = Embeddings(config)
    ids = atoms.pop("input_ids", IDS)
    params = small.draw_like(shapes(module), scale=1)
    unary, relation = small.quickly(lambda p: small.apply(module, p, ids, TYPES, **atoms))(params)
    return unary, np.moveaxis(np.asarray(relation, np.float64), 1, -1), params


def relative(params, config):
    at = jnp.arange(LENGTH)
    return np.asarray(params["relative"])[positions.relative_ids(at, at, TYPES, TYPES, config.max_distance)]


def test_words_types_and_relative_positions():
    """The paper's base atoms (10)."""
    config = small.config()
    unary, relation, params = run(config)
    assert set(params) == {"word", "type", "relative"}
    np.testing.assert_allclose(unary, normalized(params["word"][IDS] + params["type"][TYPES]), atol=1e-5)
    np.testing.assert_allclose(relation, normalized(relative(params, config)), atol=1e-5)


def test_absolute_positions_alone():
    """Binary base atoms are zeros, also after normalization."""
    unary, relation, params = run(small.config(relative_position="none", absolute_position=True))
    assert set(params) == {"word", "type", "position"}
    assert params["position"].shape[0] == 512
    want = params["word"][IDS] + params["type"][TYPES] + params["position"][None, :LENGTH]
    np.testing.assert_allclose(unary, normalized(want), atol=1e-5)
    assert not relation.any()


def test_buckets():
    """T5's, the same for each text."""
    config = small.config(
        relative_position="t5", relative_attention_num_buckets=8, relative_attention_max_distance=5
    )
    _, relation, params = run(config)
    offsets = np.arange(LENGTH)[None] - np.arange(LENGTH)[:, None]
    want = np.asarray(params["relative"])[positions.t5_buckets(offsets, 8, 5)]
    np.testing.assert_allclose(relation, normalized(np.stack([want, want])), atol=1e-5)


@pytest.mark.parametrize("several", [True, False])
def test_relations_by_number(several):
    """One or several per pair, -1 for none, added to the relative positions."""
    config = small.config(relation_vocab_size=4)
    ids = np.random.default_rng(0).integers(-1, 4, (2, LENGTH, LENGTH, 3))
    ids[0, 0, 0] = -1
    ids[0, 0, 1] = 2  # thrice
    given = jnp.asarray(ids if several else ids[..., 0])
    _, relation, params = run(config, relation_ids=given)
    rows = np.concatenate((np.asarray(params["relation"]), np.zeros((1, config.relation_size))))
    added = rows[ids].sum(axis=-2) if several else rows[ids[..., 0]]
    np.testing.assert_allclose(relation, normalized(relative(params, config) + added), atol=1e-5)


def test_atoms_as_vectors():
    """Both kinds are added before normalization; properties can replace the words."""
    config = small.config()
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
    config = small.config(diagonal_link=True)
    _, relation, params = run(config)
    linked = (params["word"][IDS] + params["type"][TYPES]) @ params["diagonal"]["weight"]
    linked = np.asarray(linked) + np.asarray(params["diagonal"]["bias"])
    want = relative(params, config)
    want[:, np.arange(LENGTH), np.arange(LENGTH)] += linked
    np.testing.assert_allclose(relation, normalized(want), atol=2e-5)


def test_the_type_of_the_computation_and_dropout():
    """bfloat16 after normalization; both kinds have dropout."""
    module = Embeddings(small.config(dtype="bfloat16", hidden_dropout_prob=0.5))
    params = small.draw_like(shapes(module))

    @small.quickly
    def run(key):
        return small.apply(module, params, IDS, TYPES, deterministic=False, rngs={"dropout": key})

    unary, relation = run(small.key())
    for atoms in (unary, relation):
        assert atoms.dtype == jnp.bfloat16
        assert 0.3 < float((atoms == 0).mean()) < 0.7
