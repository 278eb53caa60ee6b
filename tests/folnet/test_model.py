"""The encoder compared with the authors' recorded outputs; masks, dtypes, additional atoms, bad input."""

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet import FOLNet, check_inputs
from tests.folnet import known_dropout, small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

IDS, TYPES = small.tokens()
LENGTH = IDS.shape[1]


@functools.cache
def drawn(**fields) -> Any:
    """Returns a small model with random parameters."""
    model = FOLNet(small.config(**fields))
    return model, small.draw(model)


@functools.cache
def applied(model: Any, **options):
    """Applies the compiled model."""
    return small.quickly(lambda params, *args, **atoms: small.apply(model, params, *args, **options, **atoms))


@pytest.mark.parametrize("name", small.RECORDED)
def test_recorded_outputs(name):
    """Properties, relations and the pooled token of the authors' code."""
    out, want = small.recorded_outputs(name)["encoder"], small.recorded(name)
    np.testing.assert_allclose(out.last_hidden_state, want["output/unary"], atol=1e-5)
    np.testing.assert_allclose(out.relation_hidden_state, want["output/binary"], atol=1e-5)
    np.testing.assert_allclose(out.pooler_output, want["output/pooled"], atol=1e-5)


REAL = np.asarray([[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]])


def test_padding_with_a_mask_and_without():
    """With a mask, real tokens and their pairs ignore the padding; without one they do not, as released."""
    model, params = drawn(operators="jc.")
    run = applied(model)
    changed = np.array(IDS)
    changed[0, 5:] = (changed[0, 5:] + 7) % 19
    other, mask = jnp.asarray(changed), jnp.asarray(REAL)
    plain, changed = (jax.device_get(run(params, ids, TYPES, mask)) for ids in (IDS, other))
    np.testing.assert_array_equal(plain.last_hidden_state[0, :5], changed.last_hidden_state[0, :5])
    np.testing.assert_array_equal(
        plain.relation_hidden_state[0, :5, :5], changed.relation_hidden_state[0, :5, :5]
    )
    assert np.abs(plain.last_hidden_state - changed.last_hidden_state)[0, 5:].max() > 0.1
    plain, changed = (jax.device_get(run(params, ids, TYPES)) for ids in (IDS, other))
    assert np.abs(plain.last_hidden_state - changed.last_hidden_state)[0, :5].max() > 1e-3
    # A text without padding is the same with a mask and without.
    masked = run(params, IDS, TYPES, jnp.asarray(np.ones_like(REAL)))
    chex.assert_trees_all_close(masked, plain, atol=1e-5)


def test_bfloat16():
    """Close to float32, in its own dtype, with float32 parameters and every operator."""
    name = "folnet_full"
    model, params = small.recorded_model(name, FOLNet)
    half: Any = FOLNet(model.config.replace(dtype="bfloat16"))
    out = applied(half)(params, *small.recorded_inputs(name))
    assert {leaf.dtype for leaf in jax.tree.leaves(out)} == {jnp.dtype("bfloat16")}
    for key, value in (("unary", out.last_hidden_state), ("binary", out.relation_hidden_state)):
        want = small.recorded(name)[f"output/{key}"]
        error = np.asarray(value, np.float32) - want
        # bfloat16 has eight bits: each of some ten roundings is off by up to 2^-9 of values of size 1 to 4.
        assert np.sqrt(np.mean(error**2)) < 0.02
        assert np.abs(error).max() < 0.2


def test_hidden_states_and_the_diagonal_link():
    """Base atoms, each layer and the end; None unless requested.

    An affine map of each token's last relation to itself is added to its last properties, after these.
    """
    model, params = drawn(diagonal_link=True, operators="j.", num_hidden_layers=2)
    out = jax.device_get(applied(model, output_hidden_states=True)(params, IDS, TYPES))
    assert len(out.hidden_states) == len(out.relation_hidden_states) == 3
    np.testing.assert_array_equal(out.relation_hidden_states[-1], out.relation_hidden_state)
    own = out.relation_hidden_state[:, np.arange(LENGTH), np.arange(LENGTH)]
    link = {name: np.asarray(leaf) for name, leaf in params["diagonal"].items()}
    want = out.hidden_states[-1] + (own @ link["weight"] + link["bias"])
    np.testing.assert_allclose(out.last_hidden_state, want, atol=1e-5)
    unary, relation = small.quickly(lambda p: model.bind({"params": p}).embeddings(IDS, TYPES))(params)
    np.testing.assert_allclose(out.hidden_states[0], unary, atol=1e-6)
    np.testing.assert_allclose(out.relation_hidden_states[0], np.moveaxis(relation, 1, -1), atol=1e-6)
    assert jax.eval_shape(applied(model), params, IDS, TYPES).hidden_states is None


def test_a_relation_that_is_given_is_read():
    """In a symbolic graph, a pair's relation changes the conclusions about its tokens."""
    model, params = drawn(operators="j.", relation_vocab_size=3)
    given = np.full((2, LENGTH, LENGTH), -1)
    run = small.quickly(
        lambda ids: small.apply(model, params, IDS, TYPES, relation_ids=ids).last_hidden_state
    )
    plain = np.asarray(run(given))
    given[0, 2, 4] = 1
    said = np.asarray(run(given))
    assert np.abs(said - plain)[0, 2].max() > 1e-3
    np.testing.assert_allclose(said[1], plain[1], atol=1e-6)


def test_dropout_of_the_whole_model():
    """It is disabled by default; every place of base atoms and layers has a key of its own."""
    rates = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
    model, params = drawn(operators="jc.t", num_hidden_layers=2, **rates)
    jax.eval_shape(lambda: small.apply(model, params, IDS, TYPES))  # without a key

    def run(key):
        return small.apply(model, params, IDS, TYPES, None, False, rngs={"dropout": key})

    assert known_dropout.trace(run) == {
        (0.2, (2, 7, 14)): 1 + 2 * 2,
        (0.2, (2, 6, 7, 7)): 1 + 2 * 2,
        (0.3, (2, 3, 7, 7)): 2,
        (0.3, (2, 4, 3, 7)): 2,
        (0.3, (2, 6, 7, 7)): 2,
    }


@pytest.mark.parametrize(
    ("arguments", "atoms", "message"),
    [
        ((), {}, "input_ids, inputs_embeds: got None for both"),
        ((np.zeros(3, int),), {}, r"input_ids: got shape \(3,\), expected \[B, T\]"),
        ((np.zeros((2, 0), int),), {}, r"input_ids: got shape \(2, 0\)"),
        ((np.zeros((2, 3)),), {}, "input_ids: got type float.*, expected integers"),
        (
            (np.zeros((2, 3), int), np.zeros((2, 4), int)),
            {},
            r"token_type_ids: got shape \(2, 4\), expected \(2, 3\)",
        ),
        ((np.zeros((2, 3), int), None, np.ones((3, 3))), {}, r"attention_mask: got shape \(3, 3\)"),
        ((np.zeros((2, 3), int), None, np.ones((2, 3))), {}, "attention_mask: got type float"),
        ((np.asarray([[1, 19]]),), {}, r"input_ids: got 19 at \[0, 1\], expected 0 to 18 \(vocab_size is"),
        ((np.asarray([[-1, 2]]),), {}, r"input_ids: got -1 at \[0, 0\]"),
        ((np.asarray([[1]]), np.asarray([[2]])), {}, r"token_type_ids: got 2 .*type_vocab_size is 2"),
        (
            (np.zeros((2, 3), int),),
            {"inputs_embeds": np.zeros((2, 3, 5))},
            r"inputs_embeds: .* expected \(2, 3, 14\)",
        ),
        ((), {"inputs_embeds": np.zeros((2, 3))}, r"inputs_embeds: got shape \(2, 3\), expected \[B, T,"),
        (
            (np.zeros((2, 3), int),),
            {"relation_embeds": np.zeros((2, 3, 3, 5))},
            r"relation_embeds: .* expected \(2, 3, 3, 6\)",
        ),
        (
            (np.zeros((2, 3), int),),
            {"relation_ids": np.zeros((2, 3, 4), int)},
            r"relation_ids: got shape \(2, 3, 4\)",
        ),
        (
            (np.zeros((2, 3), int),),
            {"relation_ids": np.zeros((2, 3, 3, 1, 1), int)},
            r"relation_ids: got shape \(2, 3, 3, 1, 1\)",
        ),
        (
            (np.zeros((1, 1), int),),
            {"relation_ids": np.full((1, 1, 1), -2)},
            r"relation_ids: got -2 at \[0, 0, 0\], expected -1 to 3",
        ),
        (
            (np.zeros((1, 1), int),),
            {"relation_ids": np.full((1, 1, 1), 4)},
            r"relation_ids: got 4 at \[0, 0, 0\], expected -1 to 3 \(relation_vocab_size is 4\)",
        ),
        (
            (np.zeros((2, 9), int),),
            {},
            "input_ids: got 9 tokens, expected at most max_position_embeddings = 8",
        ),
    ],
)
def test_bad_input(arguments, atoms, message):
    """The error names the argument, before anything is computed."""
    model = FOLNet(small.config(relation_vocab_size=4, absolute_position=True, max_position_embeddings=8))
    with pytest.raises(ValueError, match=message):
        model.apply({"params": {}}, *arguments, **atoms)


def test_properties_may_stand_in_place_of_tokens():
    """Of a text that is as long as there are positions, with a mask of integers."""
    model, params = drawn(operators="j.", absolute_position=True, max_position_embeddings=8)
    given, real = jnp.zeros((2, 8, small.SIZES["hidden_size"]), jnp.float16), jnp.ones((2, 8), jnp.int32)
    run = functools.partial(small.apply, model, attention_mask=real, inputs_embeds=given)
    out = jax.eval_shape(run, params)
    assert (out.last_hidden_state.shape, out.last_hidden_state.dtype) == (given.shape, jnp.float32)


def test_relations_by_number_need_a_table():
    """The settings must provide it."""
    with pytest.raises(ValueError, match="relation_ids: got an array, expected None"):
        FOLNet(small.config()).apply({"params": {}}, IDS, relation_ids=np.full((2, LENGTH, LENGTH), -1))


def test_ids_are_checked_on_the_host_only():
    """Compiled functions have no values to check; ids out of range, negative ones too, then give NaN."""
    config = small.config(operators="j.", relation_vocab_size=4)
    with pytest.raises(ValueError, match=r"input_ids: got 19 at \[1, 0\]"):
        check_inputs(config, np.asarray([[0], [19]]))
    check_inputs(config, np.asarray([[0], [18]]), np.asarray([[0], [1]]))
    model = FOLNet(config)
    params = small.draw(model)
    ids, types = np.asarray([[1, 19, -1, -19, 18, 0]]), np.asarray([[1, 0, 0, 0, 2, -1]])
    relations = np.full((1, 6, 6), -1)
    relations[0, 1, :3] = 4, -2, 3

    @small.quickly
    def base(*texts):
        out = small.apply(model, params, *texts[:2], relation_ids=texts[2], output_hidden_states=True)
        return out.hidden_states[0], out.relation_hidden_states[0]

    unary, relation = (np.isnan(atoms).any(-1)[0] for atoms in base(ids, types, relations))
    assert unary.tolist() == [False] + [True] * 5
    assert np.argwhere(relation).tolist() == [[1, 0], [1, 1]]
