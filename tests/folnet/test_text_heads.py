"""Models that generate text: logits, files, what they learn, and what they cannot know."""

import functools
import math
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from folnet import (
    FOLNet,
    FOLNetForCausalLM,
    FOLNetForConditionalGeneration,
    FOLNetForMaskedLM,
    parameters,
    text_objective,
)
from folnet.encoder_decoder import Encoded
from folnet.transformer_configuration import TransformerConfig
from tests import compiling
from tests.folnet import small
from tests.folnet.small_decoders import causal, conditional, method, words


def test_logits_are_by_the_table_of_words():
    """There is nothing in between and no other table."""
    model, params = causal("j.")
    out = method(model)(params, words(2, 4))
    table = params["folnet"]["embeddings"]["word"]
    np.testing.assert_allclose(out.logits, np.asarray(out.last_hidden_state) @ np.asarray(table).T, atol=1e-5)
    assert out.hidden_states is None
    assert out.relation_hidden_state.shape == (2, 4, 4, small.SIZES["relation_size"])
    names = parameters.shapes(model)
    assert all(name.startswith(("folnet.embeddings.", "folnet.reasoner.")) for name in names)
    both = parameters.shapes(conditional("j.")[0])
    assert [name for name in both if both[name] == table.shape] == ["folnet.embeddings.word"]


@pytest.mark.parametrize("pad", [0, 7])
def test_padding_before_a_text_does_not_count(pad):
    """The loss is that of the text alone, whose first word nothing is before."""
    model, params = causal("j.")
    text = words(1, 3, seed=2)
    padded, real = jnp.pad(text, ((0, 0), (2, 0)), constant_values=pad), jnp.asarray([[0, 0, 1, 1, 1]])

    @small.quickly
    def losses(params):
        alone = small.apply(model, params, text, labels=text).loss
        out = small.apply(model, params, padded, None, real, labels=jnp.where(real, padded, -100))
        return alone, out.loss, text_objective.next_word(out.logits, padded, real)

    alone, loss, found = losses(params)
    np.testing.assert_allclose([loss, found.mean], [alone] * 2, rtol=1e-5)
    assert int(found.count) == 2


@pytest.mark.parametrize("build", [causal, conditional])
def test_saved_and_loaded(build, tmp_path):
    """The loaded parameters are equal."""
    model, params = build("j.")
    model.save_pretrained(tmp_path, params)
    loaded, again = type(model).from_pretrained(tmp_path)
    assert loaded == model
    chex.assert_trees_all_equal(again, params)


def test_an_encoder_starts_them(tmp_path):
    """A causal model takes an encoder without its pooler; an encoder-decoder takes all and adds a decoder."""
    encoder = FOLNetForMaskedLM(small.config(operators="j."))
    params = small.draw(encoder)
    encoder.save_pretrained(tmp_path / "headed", params)
    FOLNet(small.config(operators="j.")).save_pretrained(tmp_path / "bare", params["folnet"])
    body = {name: value for name, value in params["folnet"].items() if name != "pooler"}
    for name in ("headed", "bare"):
        _, found = FOLNetForCausalLM.from_pretrained(tmp_path / name)
        chex.assert_trees_all_equal(found["folnet"], body)
    with compiling.quickly():
        model, found = FOLNetForConditionalGeneration.from_pretrained(tmp_path / "headed", key=small.key())
    chex.assert_trees_all_equal(found["folnet"], params["folnet"])
    shapes = {name: value.shape for name, value in parameters.flatten(found).items()}
    assert not parameters.misfits(parameters.shapes(model), shapes)
    with pytest.raises(ValueError, match=r"decoder\.reasoner\.layers_0\.join_input\.weight: missing"):
        FOLNetForConditionalGeneration.from_pretrained(tmp_path / "bare")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"decoder_input_ids": jnp.zeros((3, 2), jnp.int32)}, r"decoder_input_ids: got shape \(3, 2\)"),
        ({"decoder_input_ids": jnp.full((2, 2), 19)}, r"decoder_input_ids: got 19 at \[0, 0\]"),
        ({"decoder_attention_mask": jnp.ones((2, 3))}, r"decoder_attention_mask: got shape \(2, 3\)"),
        ({"input_ids": jnp.zeros(3, jnp.int32)}, r"input_ids: got shape \(3,\)"),
        ({"decoder_input_ids": jnp.zeros((2, 5), jnp.int32)}, "decoder_input_ids: got 5 tokens"),
    ],
)
def test_bad_input(given, message):
    """Refused with the argument's name before anything is computed."""
    config = small.config(absolute_position=True, max_position_embeddings=4)
    zeros: Any = {name: jnp.zeros((2, 2), jnp.int32) for name in ("input_ids", "decoder_input_ids")}
    with pytest.raises(ValueError, match=message):
        FOLNetForConditionalGeneration(config).init(jax.random.key(0), **{**zeros, **given})


def test_targets_of_encoded_inputs_are_checked_too():
    """Where the inputs are no longer there to be checked."""
    model, _ = conditional("j.")
    zeros = jnp.zeros((2, 3, small.SIZES["hidden_size"])), jnp.zeros((2, small.SIZES["relation_size"], 3, 3))
    encoded = Encoded(*zeros, jnp.ones((2, 3), bool))
    with pytest.raises(ValueError, match=r"decoder_input_ids: got shape \(3, 2\), expected \[2, T\]"):
        model.apply({"params": {}}, encoded, jnp.zeros((3, 2), jnp.int32), method="decode")
    target, real = jnp.zeros((2, 2), jnp.int32), jnp.ones((2, 3), bool)
    with pytest.raises(ValueError, match=r"decoder_attention_mask: got shape \(2, 3\)"):
        model.apply({"params": {}}, encoded, target, real, method="decode")


def test_masks_may_be_of_integers():
    """Of an input and of its target; 0 and 1 stand for False and True."""
    model, params = conditional("j.")
    real = [jnp.ones((2, length), jnp.int32) for length in (4, 3)]
    run = functools.partial(small.apply, model)
    out = jax.eval_shape(run, params, words(2, 4), words(2, 3), None, *real)
    assert out.logits.shape == (2, 3, small.SIZES["vocab_size"])


def test_a_transformer_generates_no_text():
    """Its settings are refused before its encoder is built."""
    cls: Any = FOLNetForConditionalGeneration
    with pytest.raises(ValueError, match="expected a FOLNetConfig"):
        cls(TransformerConfig()).init(jax.random.key(0), words(1, 3), words(1, 3))


# Learning: a model that saw what it predicts would know random words too.
LENGTH, VOCAB, BATCH = 8, 12, 32


def drawn(key, copies):
    """Draws texts of random words; in copies the second half repeats the first."""
    words_ = jax.random.randint(key, (BATCH, LENGTH), 0, VOCAB)
    return jnp.where(copies, jnp.tile(words_[:, : LENGTH // 2], (1, 2)), words_)


def trained(model: Any, loss_of: Any, copies: bool, steps: int) -> np.ndarray:
    """Returns the mean loss of each step, always on new texts."""
    optimizer = optax.adam(optax.linear_schedule(4e-3, 4e-4, steps))
    params = parameters.nest(parameters.draw(model, jax.random.key(0), parameters.shapes(model)))

    def step(state, key):
        params, moments = state
        text = drawn(key, copies)
        loss, gradient = jax.value_and_grad(lambda p: loss_of(model, p, text))(params)
        change, moments = optimizer.update(gradient, moments)
        return (optax.apply_updates(params, change), moments), loss

    run = jax.jit(functools.partial(jax.lax.scan, step))
    _, losses = run((params, optimizer.init(params)), jax.random.split(jax.random.key(1), steps))
    return np.asarray(losses)


def causal_loss(model, params, text):
    """Computes the loss of the second half given the first."""
    out = model.apply({"params": params}, text)
    return text_objective.next_word(out.logits, text, None, jnp.full(BATCH, LENGTH // 2)).mean


def prefix_loss(model, params, text):
    """Computes the loss of the second half given the first as a prefix."""
    prefix = jnp.full(BATCH, LENGTH // 2)
    out = model.apply({"params": params}, text, prefix_lengths=prefix)
    return text_objective.next_word(out.logits, text, None, prefix).mean


def conditional_loss(model, params, text):
    """Computes the loss of the second half as the target of the first."""
    source, labels = text[:, : LENGTH // 2], text[:, LENGTH // 2 :]
    read = text_objective.shift_right(labels, decoder_start_token_id=0, pad_token_id=0)
    return text_objective.target(model.apply({"params": params}, source, read).logits, labels).mean


@pytest.mark.slow
@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("kind", ["causal", "prefix", "conditional"])
def test_copies_are_learned_and_random_words_stay_at_chance(kind, copies):
    """The loss is near 0 on copies and at least the logarithm of the number of words on random ones."""
    cls = FOLNetForConditionalGeneration if kind == "conditional" else FOLNetForCausalLM
    config = small.config(
        vocab_size=VOCAB,
        hidden_size=32,
        relation_size=8,
        num_attention_heads=4,
        head_size=8,
        intermediate_size=64,
        relation_intermediate_size=16,
        max_distance=8,
        num_hidden_layers=2,
        absolute_position=kind == "conditional",
        max_position_embeddings=LENGTH,
    )
    loss = {"causal": causal_loss, "prefix": prefix_loss, "conditional": conditional_loss}[kind]
    losses = trained(cls(config), loss, copies, steps=600 if kind == "conditional" else 250)
    last = losses[-25:].mean()
    if copies:
        assert last < 0.05
    else:
        # The mean of 25 batches of 128 words that nothing tells: a model's loss on them is no less.
        assert math.log(VOCAB) - 0.02 < last < math.log(VOCAB) + 0.2
