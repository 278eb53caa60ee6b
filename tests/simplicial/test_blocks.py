"""The Transformer blocks and their stacks: pseudo-code in float64, masks, permutations, sharing."""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simplicial import (
    Agent,
    OneSimplicialAttention,
    RelationalBlock,
    SimplicialBlock,
    SimplicialTransformer,
    TwoSimplicialAttention,
)
from simplicial.blocks import FeedForward, LayerNorm, virtual_entities
from tests.simplicial import numpy_agent
from tests.simplicial.small import draw, made, parameters, quickly

pytestmark = pytest.mark.usefixtures("compiled_quickly")

WIDTH = 8


def small(num_virtual_entities=3, num_blocks=2, **fields):
    """Builds a small stack with more than one head of each kind."""
    return SimplicialTransformer(
        num_virtual_entities,
        num_blocks,
        features=WIDTH,
        num_two_simplicial_heads=2,
        two_simplicial_features=12,
        **fields,
    )


def block(**fields):
    """Builds a small simplicial block for use without a stack."""
    return SimplicialBlock(
        OneSimplicialAttention(2, WIDTH, **fields),
        TwoSimplicialAttention(1, 6, **fields),
        FeedForward(16, WIDTH, **fields),
        **fields,
    )


X = draw(1, 2, 6, WIDTH)
VIRTUAL = draw(2, 3, WIDTH)


@functools.cache
def masked_stack(num_virtual):
    """Returns variables of a stack, and its call for two examples, in which masks are arguments."""
    variables, apply = made(small(num_virtual), X)
    allowed: dict[str, Any] = {"entity_mask": np.ones((2, 6), bool), "mask": np.ones((6, 6), bool)}
    if num_virtual:
        allowed["pair_mask"] = np.ones((6, 1, 1), bool)
    return variables, lambda x, **masks: apply(variables, x, **{**allowed, **masks})


@functools.cache
def masked_block():
    """Returns a block's call in float64, whose virtual entities and pair mask are arguments."""
    with jax.enable_x64(True):
        module = block(param_dtype=jnp.float64)
        variables = parameters(module, X, VIRTUAL)
        apply = quickly(module.apply)

    def call(x=X, virtual=VIRTUAL, pair_mask=None):
        allowed = np.ones((2, 6, 3, 3), bool) if pair_mask is None else pair_mask
        with jax.enable_x64(True):
            return apply(variables, x, virtual, pair_mask=np.broadcast_to(allowed, (2, 6, 3, 3)))

    return call


@pytest.mark.parametrize("num_virtual", [0, 2])
def test_a_stack_is_the_pseudo_code(num_virtual):
    """Equations (12) to (14) with shared attention, B and dense weights, and separate LayerNorms."""
    with jax.enable_x64(True):
        x = draw(1, 2, 5, WIDTH)
        variables, apply = made(small(num_virtual, param_dtype=jnp.float64), x)
        out = apply(variables, x)
        params = jax.tree.map(np.asarray, variables["params"])
    assert len([name for name in params if name.startswith("block_")]) == 2
    for b in range(2):
        expected = numpy_agent.transformer(params, np.asarray(x[b]))
        np.testing.assert_allclose(out[b], expected, rtol=1e-9, atol=1e-9)


def test_entities_may_come_in_any_order():
    """Outputs are equivariant; the maximum over entities, as any symmetric function, is invariant."""
    order = [5, 2, 0, 3, 1, 4]
    _, apply = masked_stack(3)
    out, reordered = apply(X), apply(X[:, order])
    np.testing.assert_allclose(reordered, out[:, order], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.max(reordered, axis=1), np.max(out, axis=1), rtol=1e-4, atol=1e-5)
    assert np.abs(reordered - out).max() > 0.1


def test_virtual_entities_do_not_depend_on_the_order():
    """A block's virtual entities read the standard entities as a set."""
    order, apply = [5, 2, 0, 3, 1, 4], masked_block()
    (out, read), (reordered, read_again) = apply(), apply(X[:, order])
    np.testing.assert_allclose(reordered, out[:, order], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(read_again, read, rtol=1e-4, atol=1e-5)
    # All three differ, and they depend on the set.
    _, of_others = apply(np.concatenate([draw(3, 2, 1, WIDTH), X[:, 1:]], axis=1))
    assert np.abs(of_others - read).max(axis=-1).min() > 1e-3
    assert np.abs(read[:, 0] - read[:, 1]).max() > 0.1


def test_virtual_entities_of_the_whole_batch():
    """Shared [M, V] and copies per example give the same values."""
    mask = draw(3, 2, 6, 3, 3) > -0.5
    shared = masked_block()(pair_mask=mask)
    copied = masked_block()(virtual=np.broadcast_to(VIRTUAL, (2, 3, WIDTH)), pair_mask=mask)
    for got, want in zip(shared, copied, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-8)


def test_first_block_makes_keys_and_products_of_virtual_entities_once():
    """In the first block, no array of B(u, u) has a batch axis."""
    module = block()
    batch, x = 7, np.zeros((7, 5, WIDTH))
    variables, _ = made(module, x, np.zeros((3, WIDTH)))

    def shapes(virtual):
        lowered = jax.jit(module.apply).lower(variables, x, virtual).as_text()
        # B of 6 x 6 x 6 meets values in products of which one factor is 6 x 6 x 6.
        return [line for line in lowered.splitlines() if "dot_general" in line and "6x6x6x" in line]

    once, often = shapes(np.zeros((3, WIDTH))), shapes(np.zeros((batch, 3, WIDTH)))
    assert once
    assert often
    assert not any(f"tensor<{batch}x" in line or f"x{batch}x" in line for line in once)
    assert any(f"{batch}x" in line for line in often)


@pytest.mark.parametrize("num_virtual", [0, 3])
def test_padding_is_as_if_it_were_not_there(num_virtual):
    """Padding does not change the other standard entities in any example."""
    there = np.array([[True, True, False, True, False, True], [False, True, True, True, True, False]])
    variables, apply = masked_stack(num_virtual)
    out = apply(X, entity_mask=there)
    for b in range(2):
        expected = numpy_agent.transformer(variables["params"], X[b, there[b]])
        np.testing.assert_allclose(out[b, there[b]], expected, rtol=1e-4, atol=1e-5)
    assert np.abs(out - apply(X))[0, there[0]].max() > 1e-3


def test_masks_say_who_relates_to_whom():
    """With nothing to attend to, an entity depends only on itself."""
    _, apply = masked_stack(3)
    masks = {"mask": np.eye(6, dtype=bool), "pair_mask": np.zeros((6, 1, 1), bool)}
    moved = np.concatenate([draw(2, 2, 1, WIDTH), X[:, 1:]], axis=1)
    before, after = (apply(x, **masks) for x in (X, moved))
    np.testing.assert_array_equal(before[:, 1:], after[:, 1:])
    assert np.abs(before[:, 0] - after[:, 0]).max() > 0.1
    # With pairs allowed, the change reaches the second block, through virtual entities alone.
    del masks["pair_mask"]
    before, after = (apply(x, **masks) for x in (X, moved))
    assert np.abs(before[:, 1:] - after[:, 1:]).max(axis=-1).min() > 1e-4


def test_masks_of_relational_blocks():
    """With itself alone to attend to, an entity depends on no other."""
    _, apply = masked_stack(0)
    moved = np.concatenate([draw(2, 2, 1, WIDTH), X[:, 1:]], axis=1)
    before, after = (apply(x, mask=np.eye(6, dtype=bool)) for x in (X, moved))
    np.testing.assert_array_equal(before[:, 1:], after[:, 1:])
    before, after = apply(X), apply(moved)
    assert np.abs(before[:, 1:] - after[:, 1:]).max(axis=-1).min() > 1e-4


def test_pair_masks_for_each_pair():
    """With only the pair (0, 0) allowed, other virtual entities do not affect standard entities."""
    only = np.zeros((1, 3, 3), bool)
    only[0, 0, 0] = True
    apply, other = masked_block(), np.concatenate([VIRTUAL[:1], draw(3, 2, WIDTH)])
    (before, _), (after, _) = (apply(virtual=v, pair_mask=only) for v in (VIRTUAL, other))
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)
    (before, _), (after, _) = apply(), apply(virtual=other)
    assert np.abs(before - after).max() > 1e-3


def test_weights_are_shared_and_layer_norms_are_not():
    """Checks names and sizes; a separate block stores its layers under its field names."""
    x = np.zeros((5, WIDTH))
    params = jax.eval_shape(small(2, 3).init, jax.random.key(0), x)["params"]
    assert set(params) == {
        "attention",
        "feed_forward",
        "two_simplicial",
        "virtual_entities",
        *(f"block_{i}" for i in range(3)),
    }
    assert all(set(params[f"block_{i}"]) == {"input_norm", "pair_norm", "output_norm"} for i in range(3))
    relational = jax.eval_shape(small(0, 3).init, jax.random.key(0), x)["params"]
    assert set(relational["block_0"]) == {"input_norm", "output_norm"}
    alone = RelationalBlock(OneSimplicialAttention(2, WIDTH), FeedForward(16, WIDTH))
    params = jax.eval_shape(alone.init, jax.random.key(0), x)["params"]
    assert set(params) == {"attention", "feed_forward", "input_norm", "output_norm"}


def test_default_sizes_are_the_papers():
    """A stack has the parameters of the agent's, and its layers the sizes of Section 4."""
    whole = jax.eval_shape(Agent().init, jax.random.key(0), np.zeros((7, 10, 3), np.uint8))
    alone = jax.eval_shape(SimplicialTransformer().init, jax.random.key(0), np.zeros((5, 64)))
    assert whole["params"]["transformer"] == alone["params"]
    assert OneSimplicialAttention() == OneSimplicialAttention(2, 64)
    assert TwoSimplicialAttention() == TwoSimplicialAttention(1, 48)
    assert FeedForward() == FeedForward(64, 64)


def test_virtual_entities_start_as_an_embedding():
    """Uniform in [-0.05, 0.05], as in Keras."""
    entities = np.asarray(virtual_entities(jax.random.key(0), (200, 64), jnp.float32))
    assert -0.05 <= entities.min() < -0.0499
    assert 0.0499 < entities.max() <= 0.05
    assert abs(entities.mean()) < 1e-3


def test_bfloat16_is_near_float32():
    """The stream between blocks has the compute dtype; parameters are unchanged."""
    variables, apply = masked_stack(3)
    half = quickly(small(3, dtype=jnp.bfloat16).apply)(variables, X)
    assert half.dtype == jnp.bfloat16
    difference = np.abs(np.asarray(half, np.float32) - apply(X))
    assert 0 < difference.mean() < 0.02


def test_variance_is_that_of_differences():
    """Entities far from 0 keep their digits: E[x^2] - E[x]^2 would lose all of a variance of 1e-6 E[x]^2."""
    x = (1000 + draw(1, 3, WIDTH)).astype(np.float32)
    norm = {"scale": np.ones(WIDTH, np.float32), "bias": np.zeros(WIDTH, np.float32)}
    got: Any = LayerNorm().apply({"params": norm}, jnp.asarray(x))
    np.testing.assert_allclose(got, numpy_agent.layer_norm(norm, x.astype(np.float64)), atol=2e-4)


def test_types_between_blocks():
    """Entities keep their dtype from block to block, whether the parameters are wider or narrower."""
    for dtype, entities, fields in (
        (jnp.bfloat16, jnp.bfloat16, {"param_dtype": jnp.bfloat16}),
        (jnp.bfloat16, jnp.float32, {"dtype": jnp.bfloat16}),
        (jnp.float32, jnp.float32, {"param_dtype": jnp.bfloat16}),
        (jnp.float64, jnp.float64, {}),
    ):
        with jax.enable_x64(dtype == jnp.float64):
            x = jnp.zeros((2, 5, WIDTH), entities)
            out, _ = jax.eval_shape(small(3, **fields).init_with_output, jax.random.key(0), x)
        assert out.dtype == dtype


@pytest.mark.parametrize(
    ("module", "inputs", "masks", "message"),
    [
        (small(-1), [(5, WIDTH)], {}, "num_virtual_entities: got -1"),
        (small(2, 0), [(5, WIDTH)], {}, "num_blocks: got 0"),
        (small(), [(5, 7)], {}, "entities: got shape (5, 7)"),
        (small(0), [(WIDTH,)], {}, "entities: got shape (8,)"),
        (small(0), [(5, WIDTH)], {"pair_mask": np.ones((5, 2, 2), bool)}, "pair_mask: got a mask"),
        (
            small(),
            [(5, WIDTH)],
            {"entity_mask": np.ones(4, bool)},
            "entity_mask: got shape (4,), expected one that broadcasts",
        ),
        (small(0), [(5, WIDTH)], {"entity_mask": np.ones(4, bool)}, "entity_mask: got shape (4,)"),
        (small(), [(5, WIDTH)], {"pair_mask": np.ones((5, 2, 2), bool)}, "pair_mask: got shape (5, 2, 2)"),
        (block(), [(2, 5, WIDTH), (3, 2, WIDTH)], {}, "virtual: got shape (3, 2, 8)"),
        (block(), [(2, 5, WIDTH), (2, 7)], {}, "virtual: got shape (2, 7)"),
    ],
)
def test_what_does_not_fit_is_named(module, inputs, masks, message):
    """Errors name the argument, its shape and what was expected."""
    with pytest.raises(ValueError, match=re.escape(message)):
        jax.eval_shape(
            lambda key: module.init(key, *(np.zeros(shape) for shape in inputs), **masks), jax.random.key(0)
        )
