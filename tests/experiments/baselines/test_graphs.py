"""The models of graphs against loops in NumPy; permutations, masks, absent relations and bad input."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.baselines import RGCN, EdgeEmbedding, EdgeTransformer, RelationAwareTransformer, adjacency_of
from experiments.baselines.edge_transformer import triangular_attend
from tests.experiments.baselines import oracles

pytestmark = pytest.mark.usefixtures("compiled_quickly")

B, N, D, H, R = 2, 4, 8, 2, 3
RNG = np.random.default_rng(1)
INPUTS = RNG.normal(size=(B, N, D)).astype(np.float32)
EDGES = RNG.normal(size=(B, N, N, D)).astype(np.float32)
RELATIONS = RNG.integers(-1, R, size=(B, N, N)).astype(np.int32)
ADJACENCY = RNG.random(size=(B, R, N, N)) < 0.5
ADJACENCY[0, 1, 2] = False  # a node without neighbours by one relation
MASK = np.array([[True] * N, [True, False, True, False]])

MODELS: dict[str, tuple[Any, ...]] = {
    "relation_aware": (RelationAwareTransformer(2, H, 12, R), INPUTS, RELATIONS),
    "edge": (EdgeTransformer(2, H, 12), EDGES),
    "rgcn": (RGCN(3, 6), INPUTS, ADJACENCY),
    "rgcn with bases": (RGCN(2, 6, num_bases=2), INPUTS, ADJACENCY),
}


def relation_aware(p, x, relations, mask):
    """Shaw et al., equations 3 and 4, with a_ij looked up for each pair."""
    length, size = x.shape[0], x.shape[1] // H
    mixed = np.zeros_like(x)
    for h in range(H):
        part = slice(h * size, (h + 1) * size)
        q, k, v = (oracles.dense(p[name], x)[:, part] for name in ("query", "key", "value"))

        def vector(name, i, j):
            return p[name][relations[i, j]] if relations[i, j] >= 0 else np.zeros(size)

        for i in range(length):
            allowed = [j for j in range(length) if mask[j]]
            e = [q[i] @ (k[j] + vector("relation_keys", i, j)) / np.sqrt(size) for j in allowed]
            for weight, j in zip(oracles.softmax(np.array(e)), allowed, strict=True):
                mixed[i, part] += weight * (v[j] + vector("relation_values", i, j))
    return oracles.dense(p["output"], mixed)


def triangular(p, x, mask):
    """Bergen et al., equations 2 to 4, edge by edge."""
    length, size = x.shape[0], x.shape[-1] // H
    mixed = np.zeros_like(x)
    q, k, v1, v2 = (oracles.dense(p[name], x) for name in ("query", "key", "value1", "value2"))
    for h in range(H):
        part = slice(h * size, (h + 1) * size)
        for i in range(length):
            for j in range(length):
                through = [l for l in range(length) if mask[l]]
                e = [q[i, l, part] @ k[l, j, part] / np.sqrt(size) for l in through]
                for weight, l in zip(oracles.softmax(np.array(e)), through, strict=True):
                    mixed[i, j, part] += weight * v1[i, l, part] * v2[l, j, part]
    return oracles.dense(p["output"], mixed)


def rgcn(p, x, edges, mask, num_layers):
    """Schlichtkrull et al., equations 2 and 3, message by message."""
    for layer in range(num_layers):
        q = p[f"layer_{layer}"]
        new = np.zeros((N, q["self_loop"]["kernel"].shape[1]))
        for i in range(N):
            new[i] = x[i] @ q["self_loop"]["kernel"]
            for r in range(R):
                if "coefficients" in q:
                    w = sum(a * v for a, v in zip(q["coefficients"][r], q["bases"], strict=True))
                else:
                    w = q["bases"][r]
                neighbours = [j for j in range(N) if edges[r, i, j] and mask[j]]
                for j in neighbours:
                    new[i] += x[j] @ w / len(neighbours)
        x = np.maximum(new, 0) if layer < num_layers - 1 else new
    return x


def expected(name, p, b, mask):
    model, inputs, *graph = MODELS[name]
    x = inputs[b].astype(np.float64)
    if name.startswith("rgcn"):
        return rgcn(p, x, graph[0][b], mask, model.num_layers)
    if name == "edge":
        return oracles.layers(p["stack"], x, lambda q, y: triangular(q, y, mask), 2)
    return oracles.layers(p["stack"], x, lambda q, y: relation_aware(q, y, graph[0][b], mask), 2)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_against_numpy(name, masked):
    model, *arguments = MODELS[name]
    variables = oracles.drawn(model, *arguments)
    got = oracles.apply(model, variables, *arguments, mask=jnp.asarray(MASK) if masked else None)
    mask = MASK if masked else np.ones((B, N), bool)
    want = np.stack([expected(name, oracles.wide(variables), b, mask[b]) for b in range(B)])
    valid = mask[:, :, None] & mask[:, None] if name == "edge" else mask
    np.testing.assert_allclose(np.asarray(got)[valid], want[valid], rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_gradients(name):
    model, *arguments = MODELS[name]
    fewer = {} if name.startswith("rgcn") else {"num_layers": 1}  # whose programs are smaller
    oracles.finite_gradients(model.copy(**fewer), *arguments)


def test_post_norm_ends_in_a_layer_norm():
    model = EdgeTransformer(1, H, 12, norm="post")
    variables = oracles.drawn(model, EDGES)
    scaled = {"feed_forward_norm": {"scale": jnp.ones(D), "bias": jnp.zeros(D)}}
    variables["params"]["stack"]["layer_0"].update(scaled)
    states = np.asarray(oracles.apply(model, variables, EDGES))
    np.testing.assert_allclose(states.mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose(states.var(-1), 1, atol=1e-3)


def test_attention_through_no_node_is_zero():
    parts = np.random.default_rng(0).normal(size=(4, 1, 3, 3, H, 4)).astype(np.float32)
    query, key, value1, value2 = map(jnp.asarray, parts)
    got = triangular_attend(query, key, value1, value2, jnp.zeros((1, 3), bool))
    np.testing.assert_array_equal(got, 0)


def test_triangular_attention_keeps_no_triples():
    """Of the gradient as well: 32 nodes would have 32^3 products of values."""
    nodes = 32
    part = jax.ShapeDtypeStruct((1, nodes, nodes, 1, 16), jnp.float32)
    gradient = jax.grad(lambda *parts: jnp.sum(triangular_attend(*parts)), argnums=(0, 1, 2, 3))
    analysis = jax.jit(gradient).lower(part, part, part, part).compile().memory_analysis()
    assert analysis is not None
    assert analysis.temp_size_in_bytes < 4 * nodes**3 * 16


def test_embedded_edges():
    module = EdgeEmbedding(D, R)
    variables = oracles.drawn(module, RELATIONS, INPUTS)
    p = oracles.wide(variables)
    got = oracles.apply(module, variables, RELATIONS, INPUTS)
    for b, i, j in np.ndindex(B, N, N):
        r = RELATIONS[b, i, j]
        want = p["relations"][r] if r >= 0 else np.zeros(D)
        want = want + INPUTS[b, i] @ p["source"]["kernel"] + INPUTS[b, j] @ p["target"]["kernel"]
        np.testing.assert_allclose(got[b, i, j], want, atol=1e-5)
    alone = oracles.apply(module, variables, RELATIONS)
    np.testing.assert_array_equal(np.asarray(alone)[RELATIONS < 0], 0)


def test_edges_of_half_precision():
    module = EdgeEmbedding(D, R, dtype=jnp.bfloat16)
    edges, variables = jax.eval_shape(module.init_with_output, jax.random.key(0), jnp.asarray(RELATIONS))
    assert (edges.dtype, variables["params"]["relations"].dtype) == (jnp.bfloat16, jnp.float32)


def test_adjacency_of_one_relation_per_pair():
    got = adjacency_of(jnp.asarray(RELATIONS), R)
    for b, r, i, j in np.ndindex(B, R, N, N):
        assert got[b, r, i, j] == (RELATIONS[b, i, j] == r)


def test_a_boolean_adjacency_is_one_of_ones():
    model, inputs, edges = MODELS["rgcn"]
    variables = oracles.drawn(model, inputs, edges)
    states = [oracles.apply(model, variables, inputs, edges.astype(kind)) for kind in (bool, np.float32)]
    np.testing.assert_array_equal(*states)


RELATION_AWARE, EDGE, GCN = (MODELS[name][0] for name in ("relation_aware", "edge", "rgcn"))
BAD = [
    (
        RELATION_AWARE,
        {},
        (INPUTS, RELATIONS[:, :2]),
        r"relations: got shape \(2, 2, 4\), expected \[B, N, N\] = ",
    ),
    (RELATION_AWARE, {}, (INPUTS, RELATIONS * 1.0), "relations: got dtype float32, expected integers"),
    (RELATION_AWARE, {}, (INPUTS, RELATIONS + 1), "relations: got entries from 0 to 3, expected -1 to 2"),
    (RELATION_AWARE, {}, (INPUTS, RELATIONS - 1), "relations: got entries from -2 to 1, expected -1 to 2"),
    (RELATION_AWARE, {"hidden": 0}, (INPUTS, RELATIONS), "hidden: got 0, expected at least 1"),
    (RELATION_AWARE, {}, (INPUTS[0], RELATIONS), r"inputs: got shape \(4, 8\), expected \[B, N, D\]"),
    (
        RELATION_AWARE,
        {},
        (INPUTS, RELATIONS, MASK[:1]),
        r"mask: got shape \(1, 4\), expected \[B, N\] = \[2, 4\]",
    ),
    (RELATION_AWARE, {"num_relations": 0}, (INPUTS, RELATIONS), "num_relations: got 0, expected at least 1"),
    (RELATION_AWARE, {"num_heads": 3}, (INPUTS, RELATIONS), "num_heads: got 3, expected a divisor of .* = 8"),
    (
        EDGE,
        {},
        (EDGES[:, :, :3],),
        r"edges: got shape \(2, 4, 3, 8\), expected \[B, N, N, D\] = \[2, 4, 4, 8\]",
    ),
    (EDGE, {}, (INPUTS,), r"edges: got shape \(2, 4, 8\), expected \[B, N, N, D\]"),
    (EDGE, {}, (EDGES, MASK[:1]), r"mask: got shape \(1, 4\), expected \[B, N\] = \[2, 4\]"),
    (EDGE, {"num_heads": 3}, (EDGES,), "num_heads: got 3, expected a divisor of .* = 8"),
    (EDGE, {"norm": "none"}, (EDGES,), "norm: got 'none', expected one of 'pre', 'post'"),
    (EdgeEmbedding(D, R), {}, (RELATIONS[:, :2],), r"relations: got shape \(2, 2, 4\), expected \[B, N, N\]"),
    (EdgeEmbedding(D, R), {}, (RELATIONS + 1,), "relations: got entries from 0 to 3, expected -1 to 2"),
    (EdgeEmbedding(D, R), {}, (RELATIONS[0],), r"relations: got shape \(4, 4\), expected \[B, N, N\]"),
    (
        EdgeEmbedding(D, R),
        {},
        (RELATIONS, INPUTS[:, :3]),
        r"nodes: got shape \(2, 3, 8\), expected \[B, N, I\] = ",
    ),
    (EdgeEmbedding(D, R), {}, (RELATIONS, RELATIONS), "nodes: got dtype int32, expected floating point"),
    (GCN, {}, (INPUTS, RELATIONS), r"adjacency: got shape \(2, 4, 4\), expected \[B, R, N, N\]"),
    (
        GCN,
        {},
        (INPUTS, ADJACENCY[..., :3]),
        r"adjacency: got shape \(2, 3, 4, 3\), expected .* = \[2, 3, 4, 4\]",
    ),
    (GCN, {}, (INPUTS, ADJACENCY * 1), "adjacency: got dtype int32, expected bool or floating point"),
    (GCN, {}, (INPUTS[0], ADJACENCY), r"inputs: got shape \(4, 8\), expected \[B, N, D\]"),
    (GCN, {}, (INPUTS, ADJACENCY, MASK[:1]), r"mask: got shape \(1, 4\), expected \[B, N\] = \[2, 4\]"),
    (GCN, {"hidden": 0}, (INPUTS, ADJACENCY), "hidden: got 0, expected at least 1"),
    (GCN, {"num_layers": 1}, (INPUTS, ADJACENCY), "num_layers: got 1, expected at least 2"),
    (GCN, {"num_bases": 0}, (INPUTS, ADJACENCY), "num_bases: got 0, expected at least 1"),
]


@pytest.mark.parametrize(("model", "fields", "arguments", "message"), BAD)
def test_refusals(model, fields, arguments, message):
    with pytest.raises(ValueError, match=message):
        model.copy(**fields).init(jax.random.key(0), *map(jnp.asarray, arguments))


def test_adjacency_of_other_relations_is_refused():
    with pytest.raises(ValueError, match=r"relations: got shape \(4, 4\), expected \[B, N, N\]"):
        adjacency_of(jnp.asarray(RELATIONS[0]), R)
    with pytest.raises(ValueError, match=r"relations: got entries from -1 to 2, expected -1 to 1"):
        adjacency_of(jnp.asarray(RELATIONS), R - 1)
