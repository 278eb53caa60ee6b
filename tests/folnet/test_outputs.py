"""Outputs by name and index, losses from labels, and the kernels of every operator."""

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import folnet
from folnet import heads, layers, masks, objective, text_heads
from tests.folnet import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

IDS, TYPES = small.tokens()
MASK = jnp.asarray([[True] * 7, [True] * 5 + [False] * 2])
ROW, CUBE = jnp.zeros((2, 3)), jnp.zeros((2, 7, 3))


def test_fields_have_names_and_indices_unless_they_are_none():
    """A loss comes first, and what must be asked for last."""
    plain = heads.MaskedLMOutput(CUBE)
    assert (plain.keys(), len(plain), plain[0] is CUBE) == (("logits",), 1, True)
    pair, loss = jnp.zeros((2, 2)), jnp.float32(2)
    full = heads.PreTrainingOutput(CUBE, pair, loss=loss, attentions=({},), hidden_states=(CUBE,))
    names = ("loss", "prediction_logits", "seq_relationship_logits", "hidden_states", "attentions")
    assert tuple(full) == full.keys() == names
    assert all(of is loss for of in (full["loss"], full[0], full[:1][0], dict(full)["loss"]))
    assert full[-1] == ({},)
    assert full.to_tuple()[2] is pair
    with pytest.raises(KeyError, match="relation_hidden_states: expected one of loss, prediction_logits"):
        full["relation_hidden_states"]
    with pytest.raises(IndexError):
        full[5]
    assert jax.tree.map(lambda leaf: leaf, plain).loss is None
    encoded = folnet.FOLNetOutput(CUBE, ROW, None)
    assert (encoded.attentions, encoded.keys()) == (None, ("last_hidden_state", "pooler_output"))


# ---- losses


def nats(logits, labels):
    """The mean cross-entropy of the labels that count, one by one in float64."""
    logits = np.asarray(logits, np.float64).reshape(-1, np.shape(logits)[-1])
    losses = [
        np.log(np.exp(row).sum()) - row[label]
        for row, label in zip(logits, np.ravel(labels), strict=True)
        if label not in (-1, -100)
    ]
    return np.mean(losses)


LABELS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "words": (folnet.FOLNetForMaskedLM, {}, {"labels": np.where(MASK, np.asarray(IDS), -100)}),
    "pretraining": (
        folnet.FOLNetForPreTraining,
        {},
        {"labels": np.where(np.arange(7) < 2, 3, -1)[None].repeat(2, 0), "next_sentence_label": [1, 0]},
    ),
    "classes": (folnet.FOLNetForSequenceClassification, {"num_labels": 3}, {"labels": [2, 0]}),
    "tokens": (
        folnet.FOLNetForTokenClassification,
        {"num_labels": 3},
        {"labels": np.where(MASK, np.arange(7) % 3, -100)},
    ),
    "spans": (folnet.FOLNetForQuestionAnswering, {}, {"start_positions": [1, 2], "end_positions": [4, 2]}),
}


def with_head(model, params, labels):
    """Returns the output of a head, with a loss, for what an encoder may have returned."""
    rng = np.random.default_rng(1)
    shapes = ((*IDS.shape, small.SIZES["hidden_size"]), (len(IDS), small.SIZES["hidden_size"]))
    every, pooled = (jnp.asarray(rng.normal(size=of), jnp.float32) for of in shapes)
    encoded = folnet.FOLNetOutput(every, pooled, None)
    output = small.apply(model, params, encoded, True, method="_head")
    return model._with_loss(output, encoded, labels)


@pytest.mark.parametrize("name", LABELS)
def test_labels_give_the_mean_loss(name):
    """Without labels there is none; labels of -1 and -100 do not count."""
    cls, fields, labels = LABELS[name]
    model = cls(small.config(operators="j.", **fields))
    params, given = small.draw(model), {key: jnp.asarray(value) for key, value in labels.items()}
    run = functools.partial(small.apply, model)
    if name in ("tokens", "spans"):  # without the encoder
        found = small.quickly(lambda params: with_head(model, params, given))(params)
        assert jax.eval_shape(run, params, IDS, TYPES, MASK, **given).loss is not None
    else:
        found = small.quickly(run)(params, IDS, TYPES, MASK, **given)
    assert jax.eval_shape(run, params, IDS, TYPES, MASK).loss is None
    logits = found.to_tuple()[1:]
    losses = [nats(of, label) for of, label in zip(logits, labels.values(), strict=True)]
    want = np.mean(losses) if name == "spans" else np.sum(losses)
    np.testing.assert_allclose(found.loss, want, rtol=1e-5)


def test_choices_numbers_and_several_labels_have_losses():
    """Of a choice the cross-entropy, of numbers the squared error, of several labels that of each."""
    choice = folnet.FOLNetForMultipleChoice(small.config(operators="j."))
    several = folnet.FOLNetForSequenceClassification(
        small.config(operators="j.", num_labels=2, problem_type="multi_label_classification")
    )
    number = folnet.FOLNetForSequenceClassification(small.config(operators="j.", num_labels=1))
    three = jnp.asarray(np.stack([(np.asarray(IDS) + more) % 19 for more in (0, 3, 5)], axis=1))
    both, numbers = jnp.asarray([[0, 1], [1, 1]]), jnp.asarray([0.5, -2.0])

    @small.quickly
    def run(*params):
        return (
            small.apply(choice, params[0], three, labels=jnp.asarray([2, 1])),
            with_head(several, params[1], {"labels": both}),
            with_head(number, params[2], {"labels": numbers}),
        )

    chosen, of_each, guessed = run(*map(small.draw, (choice, several, number)))
    np.testing.assert_allclose(chosen.loss, nats(chosen.logits, [2, 1]), rtol=1e-5)
    np.testing.assert_allclose(guessed.loss, np.mean((guessed.logits[:, 0] - numbers) ** 2), rtol=1e-5)
    signed = np.where(both, -1.0, 1.0) * np.asarray(of_each.logits, np.float64)
    np.testing.assert_allclose(of_each.loss, np.mean(np.log1p(np.exp(signed))), rtol=1e-5)


def test_losses_of_text():
    """A decoder predicts the next word; an encoder-decoder the word at the same position."""
    config = small.config(operators="j.")
    causal, target = folnet.FOLNetForCausalLM(config), folnet.FOLNetForConditionalGeneration(config)
    labels = jnp.where(MASK, IDS, -100)

    @small.quickly
    def run(one, other):
        written = small.apply(causal, one, IDS, TYPES, MASK, labels=labels, output_hidden_states=True)
        answered = small.apply(target, other, IDS, IDS[:, ::-1], labels=labels)
        assert len(written.hidden_states) == 2
        return [(out.loss, out.logits) for out in (written, answered)]

    (written, next_words), (answered, same_words) = jax.device_get(
        run(small.draw(causal), small.draw(target))
    )
    np.testing.assert_allclose(written, nats(next_words[:, :-1], np.asarray(labels)[:, 1:]), rtol=1e-5)
    np.testing.assert_allclose(answered, nats(same_words, labels), rtol=1e-5)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"labels": np.zeros((2, 6), int)}, r"labels: got shape \(2, 6\), expected \(2, 7\)"),
        (
            {"labels": np.full((2, 7), 19)},
            r"labels: got 19 at \[0, 0\], expected 0 to 18, or one of \(",
        ),
        ({"labels": np.full((2, 7), -2)}, r"labels: got -2 at \[0, 0\], expected 0 to 18"),
        ({"labels": [[18] * 7, [-1, 19, *[-100] * 5]]}, r"labels: got 19 at \[1, 1\], expected 0 to 18"),
        ({"next_sentence_label": [1, 2], "labels": [[0] * 7] * 2}, "next_sentence_label: got 2 at "),
        ({"labels": np.zeros((2, 7))}, "labels: got type float32, expected integers"),
        (
            {"next_sentence_label": [0, 1]},
            "labels: got None, expected an array, since next_",
        ),
    ],
)
def test_labels_that_do_not_fit_are_named(labels, message):
    model = folnet.FOLNetForPreTraining(small.config(operators="j."))
    both = {"labels": np.zeros((2, 7), int), "next_sentence_label": [0, 1]}
    given = labels if "labels" not in labels else both | labels
    output = heads.PreTrainingOutput(jnp.zeros((2, 7, 19)), jnp.zeros((2, 2)))
    with pytest.raises(ValueError, match=message):
        model._with_loss(output, folnet.FOLNetOutput(CUBE, ROW, None), dict.fromkeys(both) | given)


def test_labels_of_classes_and_of_words_to_come_are_checked():
    """Of two classes too, for which the loss could be computed without the check."""
    config = small.config(operators="j.")
    model = folnet.FOLNetForSequenceClassification(config)
    output = heads.SequenceClassifierOutput(jnp.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"labels: got 2 at \[1\], expected 0 to 1"):
        model._with_loss(output, folnet.FOLNetOutput(CUBE, ROW, None), {"labels": [1, 2]})
    for labels, message in (
        (np.zeros((2, 6), int), r"labels: got shape \(2, 6\), expected \(2, 7\)"),
        (np.full((2, 7), 19), r"labels: got 19 at \[0, 0\]"),
    ):
        with pytest.raises(ValueError, match=message):
            text_heads._loss(config, jnp.zeros((2, 6, 19)), labels, 1)


def test_traced_labels_are_not_checked():
    jax.eval_shape(lambda of: objective.check_labels("labels", of, 2), jnp.asarray([7]))


# ---- kernels


def conclusions(layer, u, r, kernels, read):
    """What each mixer concludes from its kernel: Table 2, with the operators' writers and premises."""

    def written(name, subscripts, premise):
        made = jnp.einsum(subscripts, kernels[name], premise)
        return getattr(layer, name).writer(made.reshape(*made.shape[:2], -1) if made.ndim == 4 else made)

    heads_first = {
        "assoc": ("bxhs,byhs->bhxy", layer.assoc.read(u)[1]),
        "prod": ("bxhs,bsxy->bhxy", layer.prod.premise(r)),
        "trans": ("bhxa,bhay->bhxy", layer.trans.read(r)),
    }
    found = {
        name: getattr(layer, name).writer(jnp.einsum(how, kernels[name], of))
        for name, (how, of) in heads_first.items()
    }
    premise = jnp.split(layer.mu.reader.weight, [layer.config.num_attention_heads], axis=1)[1]
    found["join"] = written("join", "bhxa,bahs->bxhs", layer.join.read(u))
    found["mu"] = written("mu", "bhxa,bsxa->bxhs", jnp.einsum("bdxa,ds->bsxa", r, premise))
    found["cjoin"] = written("cjoin", read, layer.cjoin.premise(r))
    return found


def concluded(layer, u, r, mask):
    """The same by the operators."""
    return {
        "join": layer.join(r, u, mask=mask),
        "mu": layer.mu(r, mask=mask),
        "cjoin": layer.cjoin(r, u, mask=mask),
        "assoc": layer.assoc(u),
        "trans": layer.trans(r, mask=mask),
        "prod": layer.prod(u, r),
    }


@pytest.mark.parametrize(
    ("cls", "read"), [(folnet.FOLNet, "bsha,bsay->bysh"), (folnet.FOLNetDecoder, "bshxa,bsxa->bxsh")]
)
def test_kernels_are_what_the_operators_weight_premises_with(cls, read):
    """With padding and, in the decoder, without what is to come."""
    model = cls(small.config())
    params = small.draw(model)
    decoder = cls is folnet.FOLNetDecoder
    mask = masks.decoder(7, None, MASK) if decoder else MASK[:, None, None]

    @small.quickly
    def run(params):
        out = small.apply(model, params, IDS, TYPES, MASK, output_attentions=True, output_hidden_states=True)
        (layer,) = model.bind({"params": params}).reasoner.layers
        states = (out.hidden_states[0], jnp.moveaxis(out.relation_hidden_states[0], -1, 1))
        u, r = layers.normalized(model.config, *states)
        (kernels,) = out.attentions
        return kernels, conclusions(layer, u, r, kernels, read), concluded(layer, u, r, mask)

    kernels, found, want = jax.device_get(run(params))
    assert set(kernels) == {*want}
    real = np.asarray(MASK)[:, None, :, None]
    for name, array in want.items():
        rows = real if np.ndim(array) == 4 else real[:, 0]  # a row of padding is nobody's
        np.testing.assert_allclose(found[name] * rows, array * rows, atol=2e-5, err_msg=name)
    for name in ("join", "mu", "cjoin", "trans"):
        kernel = kernels[name]
        assert (kernel[1][..., 5:] == 0).all()
        np.testing.assert_allclose(kernel.sum(-1)[0], 1, rtol=1e-5)


def test_what_an_encoder_decoder_returns_on_request():
    """The encoder's states and kernels are its own; the decoder's weight premises of input and target."""
    model = folnet.FOLNetForConditionalGeneration(small.config(num_hidden_layers=2, operators="jc."))
    params = small.draw(model)
    target = IDS[:, :4]

    @small.quickly
    def run(params):
        asked = {"output_attentions": True, "output_hidden_states": True}
        out = small.apply(model, params, IDS, target, TYPES, MASK, **asked)
        alone = small.apply(folnet.FOLNet(model.config), params["folnet"], IDS, TYPES, MASK, **asked)
        mask = masks.encoder_decoder(4, MASK, None)
        reasoner = model.bind({"params": params}).decoder.reasoner
        read = reasoner.read_input(
            out.encoder_last_hidden_state, jnp.moveaxis(out.encoder_relation_hidden_state, -1, 1)
        )
        atoms = (out.decoder_hidden_states[0], jnp.moveaxis(out.decoder_relation_hidden_states[0], -1, 1))
        states, premises = reasoner(*atoms, mask, read)
        layer, kept = reasoner.layers[1], premises[1]
        _, r = layers.normalized(model.config, *states[1])
        kernels = out.decoder_attentions[1]
        made = jnp.einsum("bhxa,bahs->bxhs", kernels["join"], kept.join)
        found = {"join": layer.join.writer(made.reshape(2, 4, -1))}
        made = jnp.einsum("bshxa,bsxa->bxsh", kernels["cjoin"], layer.cjoin.premise(r))
        found["cjoin"] = layer.cjoin.writer(made.reshape(2, 4, -1))
        want = {
            "join": layer.join.conclude(r, kept.join, mask=mask),
            "cjoin": layer.cjoin.conclude(r, kept.cjoin, mask=mask),
        }
        return out, alone, states, found, want

    out, alone, states, found, want = jax.device_get(run(params))
    for name, array in want.items():
        np.testing.assert_allclose(found[name], array, atol=2e-5, err_msg=name)
    for name in ("hidden_states", "relation_hidden_states", "attentions", "last_hidden_state"):
        chex.assert_trees_all_close(out[f"encoder_{name}"], alone[name], rtol=1e-6, atol=1e-6)
    chex.assert_trees_all_close(out.decoder_hidden_states, tuple(u for u, _ in states), atol=1e-6)
    np.testing.assert_allclose(out.encoder_relation_hidden_state, alone.relation_hidden_state, atol=1e-6)
    relations = tuple(np.moveaxis(r, 1, -1) for _, r in states)
    chex.assert_trees_all_close(out.decoder_relation_hidden_states, relations, atol=1e-6)
    kernel = out.decoder_attentions[0]["join"]  # over 7 tokens of the input and 4 of the target
    assert (kernel[1][..., 5:7] == 0).all()
    assert all((kernel[:, :, row, 7 + row + 1 :] == 0).all() for row in range(4))
    np.testing.assert_allclose(kernel.sum(-1), 1, rtol=1e-5)
    # Of the encoder's second layer, by its own weights.
    relation = np.asarray(alone.relation_hidden_states[1], np.float64)
    relation = (relation - relation.mean(-1, keepdims=True)) / relation.std(-1, keepdims=True)
    weight = params["folnet"]["reasoner"]["layers_1"]["join"]["kernel"]["weight"]
    powers = np.exp(relation @ np.asarray(weight)) * np.asarray(MASK)[:, None, :, None]
    want = np.moveaxis(powers / powers.sum(2, keepdims=True), -1, 1)
    np.testing.assert_allclose(alone.attentions[1]["join"], want, atol=1e-5)
    assert out.keys()[:2] == ("logits", "last_hidden_state")
    first: Any = map(jnp.asarray, out.to_tuple()[:5])
    plain = folnet.Seq2SeqLMOutput(*first)
    assert len(plain) == 5


@pytest.mark.parametrize("fields", [{}, {"relative_position": "t5"}, {"relative_position": "shaw"}])
def test_weights_of_a_transformers_attention(fields):
    """With them, values sum to what attention gives; those of Shaw et al. have values of pairs too."""
    config = folnet.TransformerConfig(**{
        name: small.SIZES[name] for name in ("vocab_size", "hidden_size", "num_attention_heads", "head_size")
    }, num_hidden_layers=1, intermediate_size=8, max_position_embeddings=16, **fields)  # fmt: skip
    model = folnet.Transformer(config)
    params = small.draw(model)

    @small.quickly
    def run(params):
        out = small.apply(model, params, IDS, TYPES, MASK, output_attentions=True, output_hidden_states=True)
        bound = model.bind({"params": params})
        attention, unary = bound.layers[0].attention, out.hidden_states[0]
        kernel = out.attentions[0]["attention"]
        made = jnp.einsum("bhxa,bahs->bxhs", kernel, attention._heads(attention.value(unary)))
        if (pairs := attention._vectors(attention.pair_values, unary, None)) is not None:
            made += jnp.einsum("bhxa,sxa->bxhs", kernel, pairs[0])
        mask = MASK[:, None, None]
        want = attention(unary, bound._bias(7, None), None, mask, True)
        return kernel, attention.output(made.reshape(2, 7, -1)), want

    kernel, found, want = run(params)
    np.testing.assert_allclose(found, want, atol=1e-5)
    assert np.abs(kernel[1, ..., 5:]).max() == 0
    np.testing.assert_allclose(np.sum(kernel, axis=-1), 1, rtol=1e-5)
