"""The decoder-only model is causal, and decoding one token at a time equals reading the whole text."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet import FOLNetDecoder, masks
from folnet.decoder_layers import DecoderReasoner
from folnet.transformer_configuration import TransformerConfig
from tests.folnet import known_dropout, small
from tests.folnet.small_decoders import ALONE, OTHER, SUBSETS, VOCAB, causal, method, words

pytestmark = pytest.mark.usefixtures("compiled_quickly")

LENGTH = 6
PREFIXES = (0, 3, LENGTH)


def sees(prefix):
    """[x, t]: whether token x may depend on token t, by the definition."""
    x, t = np.arange(LENGTH)[:, None], np.arange(LENGTH)[None]
    return (t <= x) | ((x < prefix) & (t < prefix))


def changes(model, params):
    """Returns how much changing each token changes properties [prefix, t, x] and relations [prefix, t, x, y].

    The batch has, for each prefix, a text and that text with one token changed.
    """
    text = np.asarray(words(1, LENGTH))
    changed = (text + 7 * np.eye(LENGTH, dtype=np.int32)) % VOCAB
    batch = np.tile(np.concatenate((text, changed)), (len(PREFIXES), 1))
    prefixes = np.repeat(np.asarray(PREFIXES, np.int32), LENGTH + 1)
    types = np.zeros(batch.shape, np.int32)
    out = method(model)(params, *map(jnp.asarray, (batch, types)), prefix_lengths=jnp.asarray(prefixes))
    unary, relation = (
        np.asarray(x).reshape(len(PREFIXES), LENGTH + 1, *x.shape[1:])
        for x in (out.last_hidden_state, out.relation_hidden_state)
    )
    for prefix, r in zip(PREFIXES, relation, strict=True):
        np.testing.assert_array_equal((r != 0).any(axis=-1), np.tile(sees(prefix), (LENGTH + 1, 1, 1)))
    return tuple(np.abs(x[:, 1:] - x[:, :1]).max(axis=-1) for x in (unary, relation))


def depends(operators):
    """Returns whether a token's properties depend on other tokens, with these operators in two layers."""
    unary, binary = operators.split(".")
    return bool(set(unary) & {"j", "c"}) or ("m" in unary and "a" in binary)


def check_causality(operators, **fields):
    unary, relation = changes(*causal(operators, **fields))
    for prefix, du, dr in zip(PREFIXES, unary, relation, strict=True):
        seen = sees(prefix).T  # [t, x]
        # To the bit: a weight of 0 is 0, whatever it weighs.
        np.testing.assert_array_equal(du[~seen], 0)
        np.testing.assert_array_equal(dr[~seen], 0)
        # And what may be seen is: of a prefix also later tokens.
        own = np.eye(LENGTH, dtype=bool)
        assert (du[seen] > 1e-4).all() if depends(operators) else (du[own] > 1e-4).all()
        if "a" in operators:
            for t, x, y in np.ndindex(LENGTH, LENGTH, LENGTH):
                assert dr[t, x, y] > 1e-5 or t not in (x, y) or not sees(prefix)[x, y]


CASES = (("jmc.atp", {}), ("j.", {"activation": "implication", **OTHER}))
"""All operators, and an activation that is not 0 at 0 with other distances and the diagonal links."""


@pytest.mark.parametrize(("operators", "fields"), CASES)
def test_causality(operators, fields):
    """Changing a token affects exactly the tokens that may attend to it; relations stay 0 elsewhere."""
    check_causality(operators, **fields)


@pytest.mark.slow
def test_causality_and_steps_of_subsets_of_operators():
    """Two layers, with every ninth subset and the settings in turn."""
    for number, operators in enumerate(SUBSETS[::9]):
        fields = (OTHER, {"relative_position": "none"})[number % 2]
        check_causality(operators, num_hidden_layers=2, **fields)
        check_steps(operators, num_hidden_layers=2, **fields)


@pytest.mark.parametrize("operators", ALONE)
def test_each_operator_alone(operators):
    """It keeps what it reads of other tokens and nothing else, in prefill and in steps; compiles nothing."""
    model, params = causal(operators)

    def run(params):
        out = small.apply(model, params, words(2, 3))
        logits, state = small.apply(model, params, words(2, 3), capacity=5, method="prefill")
        return (
            out.logits,
            (logits, state),
            small.apply(model, params, words(2, 1)[:, 0], state, method="step"),
        )

    every, start, step = jax.eval_shape(run, params)
    assert every.shape == (2, 3, VOCAB)
    chex.assert_trees_all_equal_shapes_and_dtypes(start, step)
    assert not any(leaf.weak_type for leaf in jax.tree.leaves((start, step)))
    (premises,) = start[1].premises
    kept = {name for name, array in vars(premises).items() if array is not None}
    assert kept == {"j.": {"join"}, "c.": {"cjoin"}, ".a": {"assoc"}, ".t": {"trans"}}.get(operators, set())


def test_gradients_have_the_pattern_of_the_mask():
    """The gradient of a token's properties is exactly 0 at atoms it may not attend to; all are finite."""
    config = small.config(operators="jm.t", num_hidden_layers=2)
    length, width = 4, config.hidden_size
    rng = np.random.default_rng(0)
    u = jnp.asarray(rng.normal(size=(2, length, width)), jnp.float32)
    r = jnp.asarray(rng.normal(size=(2, config.relation_size, length, length)), jnp.float32)
    mask = masks.decoder(length, jnp.asarray([0, 3]))
    module = DecoderReasoner(config)
    params = small.draw_like(jax.eval_shape(module.init, jax.random.key(0), u, r, mask)["params"])
    along = jnp.asarray(rng.normal(size=width), jnp.float32)

    def properties(u, r):
        states, _ = module.apply({"params": params}, u, jnp.where(mask, r, 0), mask)
        return (states[-1][0] @ along[:, None]).sum(axis=(0, 2))  # [x]; texts do not depend on each other

    du, dr = small.quickly(jax.jacrev(properties, argnums=(0, 1)))(u, r)
    chex.assert_tree_all_finite((du, dr))
    # Where all atoms are 0, the slope of normalization is a million; masks keep it from multiplying.
    assert max(float(jnp.abs(leaf).max()) for leaf in (du, dr)) < 1e3
    du = np.abs(du).max(axis=-1)  # [x, b, t]
    dr = np.abs(dr).max(axis=2)  # [x, b, a, y]
    for x, b in np.ndindex(length, 2):
        seen = np.asarray(mask[b, 0])
        np.testing.assert_array_equal(du[x, b] != 0, seen[x])
        np.testing.assert_array_equal(dr[x, b] != 0, seen & seen[x][:, None])


def check_steps(operators, **fields):
    """Compares reading a prefix at once and continuing token by token with reading the whole text."""
    model, params = causal(operators, **fields)
    batch = len(PREFIXES) * (LENGTH + 1)  # as above, for the same program
    rows, begin = np.arange(batch), LENGTH - 3
    text = np.asarray(words(batch, LENGTH, seed=2))
    types = np.random.default_rng(3).integers(0, 2, text.shape, np.int32)
    lengths, prefixes = np.asarray([begin, 1, 2])[rows % 3], np.asarray([begin, 1, 0], np.int32)[rows % 3]
    types = np.where(np.arange(LENGTH) < lengths[:, None], types, types[rows, lengths - 1][:, None])
    text, types, prefixes = map(jnp.asarray, (text, types, prefixes))
    whole = np.asarray(method(model)(params, text, types, prefix_lengths=prefixes).logits)
    start = (np.asarray(text)[:, :begin], np.asarray(types)[:, :begin], np.arange(begin) < lengths[:, None])
    prefill = method(model, "prefill", capacity=LENGTH)
    logits, state = prefill(params, *map(jnp.asarray, start), prefix_lengths=prefixes)
    for more in range(4):
        np.testing.assert_allclose(logits, whole[rows, lengths + more - 1], atol=2e-5, rtol=1e-5)
        if more < 3:
            token = np.asarray(text)[rows, lengths + more]
            logits, state = method(model, "step")(params, jnp.asarray(token), state)


@pytest.mark.parametrize(("operators", "fields"), CASES)
def test_token_by_token(operators, fields):
    """The state contains all that later tokens need, with the base atoms and diagonal links there are."""
    check_steps(operators, **fields)


@pytest.mark.parametrize("fields", [{}, OTHER])
def test_padding_is_not_seen_and_no_token_is_the_first(fields):
    """With any padding before or after it, a text gives the same results as alone."""
    model, params = causal("j.", **fields)
    text = np.tile(words(1, 4, seed=5), (2, 1))

    def run(text, real, prefixes) -> Any:
        given = map(jnp.asarray, (text, real, np.asarray(prefixes, np.int32)))
        return jax.device_get(compiled(params, *given))

    @small.quickly
    def compiled(params, text, real, prefixes):
        out = small.apply(model, params, text, None, real, prefix_lengths=prefixes)
        return out.logits, out.relation_hidden_state

    logits, relation = run(text, np.ones((2, 4), bool), [3, 0])
    for at in (0, 3):
        here, real = slice(at, at + 4), np.zeros((2, 7), bool)
        real[:, here] = True
        for seed in (6, 7):
            padded = np.array(words(2, 7, seed))
            padded[:, here] = text
            found, related = run(padded, real, [3, 0])
            np.testing.assert_allclose(found[:, here], logits, atol=1e-5)
            np.testing.assert_allclose(related[:, here, here], relation, atol=1e-5)
            assert not np.delete(related[:, here], np.arange(at, at + 4), axis=2).any()
    # That is the mask's doing: padding before a text is seen without it.
    seen, _ = run(padded, real | True, [3 + at, 0])
    assert np.abs(seen[:, here] - logits).max() > 1e-2


def test_dropout_of_the_whole_model():
    """Base atoms are dropped too; relations stay 0 outside the mask, and each place has its own key."""
    model, params = causal("j.", hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3)

    def run(key, **options):
        return small.apply(model, params, words(2, 4), None, None, False, rngs={"dropout": key}, **options)

    pairs, features = (0.2, (2, 6, 4, 4)), (0.2, (2, 4, 14))
    assert known_dropout.trace(run) == {features: 3, pairs: 2, (0.3, (2, 3, 4, 4)): 1}

    @small.quickly
    def base_atoms(key):
        with known_dropout.known():
            dropped = run(key, output_hidden_states=True)
        plain = small.apply(model, params, words(2, 4), output_hidden_states=True)
        return [(out.hidden_states[0], out.relation_hidden_states[0]) for out in (dropped, plain)]

    dropped, plain = jax.device_get(base_atoms(small.key()))
    scale = [np.asarray(known_dropout.weights(*place)) for place in (features, pairs)]
    np.testing.assert_allclose(dropped[0], plain[0] * scale[0], rtol=1e-6)
    np.testing.assert_allclose(dropped[1], plain[1] * np.moveaxis(scale[1], 1, -1), rtol=1e-6)
    # In steps and prefill nothing is dropped: they have no key.
    jax.eval_shape(lambda: small.apply(model, params, words(2, 4), capacity=5, method="prefill"))


def test_atoms_of_all_layers():
    """On request; the last are the output, and relations are 0 outside the mask in every layer."""
    model: Any = FOLNetDecoder(small.config(operators=".a"))
    out = method(model, output_hidden_states=True)(small.draw(model), words(2, 4))
    assert len(out.hidden_states) == len(out.relation_hidden_states) == 1 + model.config.num_hidden_layers
    np.testing.assert_array_equal(out.hidden_states[-1], out.last_hidden_state)
    np.testing.assert_array_equal(out.relation_hidden_states[-1], out.relation_hidden_state)
    for relation in out.relation_hidden_states:
        outside = np.asarray(relation)[:, ~np.tril(np.ones((4, 4), bool))]
        np.testing.assert_array_equal(outside, 0)


@pytest.mark.parametrize(
    ("given", "fields", "message"),
    [
        ({"input_ids": jnp.zeros(3, jnp.int32)}, {}, r"input_ids: got shape \(3,\), expected \[B, T\]"),
        ({"input_ids": jnp.full((1, 3), 19)}, {}, r"input_ids: got 19 at \[0, 0\], expected 0 to 18"),
        ({"token_type_ids": jnp.full((2, 3), 2)}, {}, r"token_type_ids: got 2 at \[0, 0\]"),
        ({"token_type_ids": jnp.zeros((2, 4), jnp.int32)}, {}, r"token_type_ids: got shape \(2, 4\)"),
        ({"attention_mask": jnp.ones((1, 3))}, {}, r"attention_mask: got shape \(1, 3\)"),
        ({"prefix_lengths": jnp.asarray([4, 0])}, {}, r"prefix_lengths: got 4 at \[0\], expected 0 to 3"),
        ({}, {"absolute_position": True, "max_position_embeddings": 2}, "3 tokens, expected at most"),
    ],
)
def test_bad_input(given, fields, message):
    """Refused with the argument's name before anything is computed."""
    model = FOLNetDecoder(small.config(**fields))
    arguments: Any = {"input_ids": jnp.zeros((2, 3), jnp.int32), **given}
    with pytest.raises(ValueError, match=message):
        model.init(jax.random.key(0), **arguments)


def test_a_state_without_room():
    """A capacity below the number of tokens."""
    model = FOLNetDecoder(small.config())
    with pytest.raises(ValueError, match="capacity: got 2, expected at least 3, the length"):
        model.init(jax.random.key(0), jnp.zeros((1, 3), jnp.int32), capacity=2, method="prefill")


def test_a_state_as_large_as_the_text_and_a_mask_of_integers():
    """There need be no room for more; 0 and 1 stand for False and True."""
    model, params = causal("j.")
    text, real = words(2, 3), jnp.asarray([[1, 1, 1], [1, 1, 0]])

    def run(params):
        start = small.apply(model, params, text, None, real, capacity=3, method="prefill")
        return small.apply(model, params, text, None, real).logits, start

    logits, (_, state) = jax.eval_shape(run, params)
    assert logits.shape == (2, 3, VOCAB)
    assert state.columns.seen.shape == (2, 3)


def test_a_transformer_is_no_decoder():
    """Its settings are refused."""
    cls: Any = FOLNetDecoder
    with pytest.raises(ValueError, match="expected a FOLNetConfig"):
        cls(TransformerConfig()).init(jax.random.key(0), jnp.zeros((1, 3), jnp.int32))
