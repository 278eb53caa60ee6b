"""The Transformers compared with FOLNet: formulas in float64 NumPy, BERT's parameter count, heads."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet import BASE, FOLNet, FOLNetForPreTraining, FOLNetForSequenceClassification
from folnet.heads import encoder
from folnet.positions import t5_buckets
from folnet.settings import ModelConfig
from folnet.transformer import Transformer, matched_to, num_parameters
from folnet.transformer_configuration import BERT_BASE, TransformerConfig
from tests.folnet import small

BATCH, LENGTH, RELATIONS = 2, 7, 5
SIZES: dict[str, Any] = {
    "vocab_size": small.SIZES["vocab_size"],
    "hidden_size": 14,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "head_size": 4,
    "intermediate_size": 22,
    "max_distance": 2,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 5,
    "max_position_embeddings": 9,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "bert": {},
    "t5": {"relative_position": "t5", "absolute_position": False, "activation": "relu"},
    "shaw": {"relative_position": "shaw", "absolute_position": False},
    "relations": {"relation_vocab_size": RELATIONS, "relative_position": "shaw"},
    "relation_bias": {
        "relation_vocab_size": RELATIONS,
        "relation_attention": "bias",
        "relative_position": "t5",
    },
}
IDS, TYPES = small.tokens(BATCH, LENGTH)
MASK = jnp.arange(LENGTH)[None] < jnp.asarray([[LENGTH], [4]])
RELATION_IDS = np.random.default_rng(5).integers(-1, RELATIONS, (BATCH, LENGTH, LENGTH, 2))


@functools.cache
def model(**fields: Any) -> tuple[Transformer, dict[str, Any]]:
    """Returns a small model with random parameters."""
    transformer = Transformer(TransformerConfig(**{**SIZES, **fields}))
    return transformer, small.draw(transformer)


def given(transformer: Transformer) -> dict[str, Any]:
    """Returns relations of pairs for a model that takes them."""
    return {"relation_ids": jnp.asarray(RELATION_IDS)} if transformer.config.relation_vocab_size else {}


@functools.cache
def ran(name: str) -> tuple[Any, dict[str, Any]]:
    """Returns a variant's outputs with a mask, and its parameters."""
    transformer, params = model(**VARIANTS[name])
    apply = small.quickly(
        functools.partial(transformer.apply, output_hidden_states=True, **given(transformer))
    )
    return apply({"params": params}, IDS, TYPES, MASK), params


def test_as_many_parameters_as_bert():
    """BERT base, uncased, with its pooler."""
    assert num_parameters(Transformer(BERT_BASE)) == 109_482_240


def numpy_layer(p, u, config, bias, keys, values):
    """Computes a layer of BERT for one text, in loops over heads."""

    def affine(x, q):
        return x @ q["weight"] + q["bias"]

    def norm(x, q):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + config.layer_norm_eps)
        return x * q["affine"]["scale"] + q["affine"]["bias"]

    a = p["attention"]
    heads = []
    for h in range(config.num_attention_heads):
        part = slice(h * config.head_size, (h + 1) * config.head_size)
        q, k, v = (affine(u, a[name])[:, part] for name in ("query", "key", "value"))
        pair_keys, pair_values = k[None] + keys, v[None] + values  # [X, A, S]
        scores = np.einsum("xs,xas->xa", q, pair_keys) / math.sqrt(config.head_size) + bias[h]
        kernel = np.exp(scores - scores.max(-1, keepdims=True))
        kernel /= kernel.sum(-1, keepdims=True)
        heads.append(np.einsum("xa,xas->xs", kernel, pair_values))
    u = norm(u + affine(np.concatenate(heads, -1), a["output"]), p["attention_norm"])
    hidden = affine(u, p["hidden"])
    if config.activation == "gelu":
        hidden = hidden * 0.5 * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))
    else:
        hidden = np.maximum(hidden, 0)
    return norm(u + affine(hidden, p["output"]), p["output_norm"]), norm


def numpy_model(name, params, text, length):
    """Computes the last features and the pooled token of one text without its padding."""
    config = TransformerConfig(**{**SIZES, **VARIANTS[name]})
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    e = p["embeddings"]
    u = e["word"][np.asarray(IDS)[text, :length]] + e["type"][np.asarray(TYPES)[text, :length]]
    if config.absolute_position:
        u = u + e["position"][:length]
    gain = e["norm"]["affine"]
    u = u - u.mean(-1, keepdims=True)
    u = u / np.sqrt((u**2).mean(-1, keepdims=True) + config.layer_norm_eps) * gain["scale"] + gain["bias"]
    bias = np.zeros((config.num_attention_heads, length, length))
    pair = np.zeros((config.num_hidden_layers, 2, length, length, config.head_size))
    for x in range(length):
        for y in range(length):
            if config.relative_position == "t5":
                (bucket,) = t5_buckets(np.asarray([y - x]), 8, 5)
                bias[:, x, y] += p["distance_bias"][bucket]
            for layer in range(config.num_hidden_layers):
                tables = p[f"layers_{layer}"]["attention"]
                for i, kind in enumerate(("pair_keys", "pair_values")):
                    if config.relative_position == "shaw":
                        pair[layer, i, x, y] += tables[kind][2 + min(max(y - x, -2), 2)]
            for relation in RELATION_IDS[text, x, y] if config.relation_vocab_size else ():
                if relation < 0:
                    continue
                if config.relation_attention == "bias":
                    bias[:, x, y] += p["relation_bias"][relation]
                    continue
                for layer in range(config.num_hidden_layers):
                    tables = p[f"layers_{layer}"]["attention"]
                    pair[layer, 0, x, y] += tables["pair_keys"][5 + relation]
                    pair[layer, 1, x, y] += tables["pair_values"][5 + relation]
    for layer in range(config.num_hidden_layers):
        u, _ = numpy_layer(p[f"layers_{layer}"], u, config, bias, *pair[layer])
    pooled = np.tanh(u[0] @ p["pooler"]["weight"] + p["pooler"]["bias"])
    return u, pooled


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("t5", "shaw"))) for name in VARIANTS]
)
def test_it_is_its_formulas(name):
    """Every variant in float64; a text with padding equals the shorter text without it."""
    out, params = ran(name)
    assert out.relation_hidden_state is None
    assert len(out.hidden_states) == SIZES["num_hidden_layers"] + 1
    for text, length in enumerate(np.asarray(MASK.sum(1))):
        u, pooled = numpy_model(name, params, text, length)
        np.testing.assert_allclose(out.last_hidden_state[text, :length], u, atol=2e-5)
        np.testing.assert_allclose(out.pooler_output[text], pooled, atol=2e-5)


def test_without_positions_tokens_have_no_order():
    """With relations alone, permuting tokens and relations permutes the features, as in a graph."""
    transformer, params = model(relation_vocab_size=RELATIONS, absolute_position=False)
    order = np.random.default_rng(1).permutation(LENGTH)
    apply = small.quickly(transformer.apply)

    def features(ids, types, relations):
        args = (jnp.asarray(ids), jnp.asarray(types), MASK | True)
        return apply({"params": params}, *args, relation_ids=jnp.asarray(relations)).last_hidden_state

    plain = features(IDS, TYPES, RELATION_IDS)
    moved = features(IDS[:, order], TYPES[:, order], RELATION_IDS[:, order][:, :, order])
    np.testing.assert_allclose(moved, plain[:, order], atol=1e-5)
    with_one_moved = RELATION_IDS[:, order]
    assert np.abs(features(IDS[:, order], TYPES[:, order], with_one_moved) - plain[:, order]).max() > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["shaw", "bias"])
def test_no_relation_is_no_relation(kind):
    """-1 everywhere equals no relations, exactly."""
    transformer, params = model(relation_vocab_size=RELATIONS, relation_attention=kind)
    apply = small.quickly(transformer.apply)
    none = jnp.full((BATCH, LENGTH, LENGTH), -1)
    first = apply({"params": params}, IDS, TYPES, relation_ids=none).last_hidden_state
    np.testing.assert_allclose(first, apply({"params": params}, IDS, TYPES).last_hidden_state, atol=1e-6)


def test_dropout_drops_what_the_rates_say():
    """Each rate changes the output; with both at 0 no key is needed."""
    transformer, params = model(num_hidden_layers=1)

    def features(hidden, kernels, key):
        config = transformer.config.replace(hidden_dropout_prob=hidden, attention_probs_dropout_prob=kernels)
        rngs = None if key is None else {"dropout": jax.random.key(key)}
        apply = small.quickly(functools.partial(Transformer(config).apply, deterministic=False))
        return apply({"params": params}, IDS, TYPES, rngs=rngs).last_hidden_state

    kept = features(0.0, 0.0, None)
    for rates in ((0.3, 0.0), (0.0, 0.3)):
        one, other = (features(*rates, key) for key in (0, 1))
        assert np.abs(one - kept).max() > 1e-2
        assert np.abs(one - other).max() > 1e-2


@pytest.mark.slow
def test_gradients_computed_again_are_the_same():
    """With a policy of `jax.checkpoint` and the same names; all gradients are finite and nonzero."""

    def gradients(remat):
        transformer, params = model(**VARIANTS["relations"], num_hidden_layers=1)
        apply = Transformer(transformer.config.replace(remat=remat)).apply

        def total(params):
            out: Any = apply({"params": params}, IDS, TYPES, MASK, **given(transformer))
            return jnp.sum(jnp.sin(out.last_hidden_state)) + jnp.sum(out.pooler_output)

        return small.quickly(jax.grad(total))(params)

    plain, again = gradients("none"), gradients("nothing_saveable")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), plain, again)
    for path, leaf in jax.tree_util.tree_leaves_with_path(plain):
        assert np.isfinite(leaf).all(), path
        # A bias of keys adds the same to all scores of a row.
        assert (np.abs(leaf).max() > 1e-4) or "['key']['bias']" in jax.tree_util.keystr(path), path


@pytest.mark.slow
def test_half_precision_is_near():
    """bfloat16 features are near float32's; parameters are float32 in both."""
    transformer, params = model(**VARIANTS["relations"])
    half = Transformer(transformer.config.replace(dtype="bfloat16"))
    run = small.quickly(functools.partial(half.apply, **given(transformer)))
    out = run({"params": params}, IDS, TYPES, MASK)
    assert out.last_hidden_state.dtype == jnp.bfloat16
    expected = ran("relations")[0].last_hidden_state
    error = np.abs(np.asarray(out.last_hidden_state, np.float32) - expected)[np.asarray(MASK)]
    assert error.mean() < 0.05
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype("float32")}


@pytest.mark.parametrize("name", [pytest.param("bert", marks=pytest.mark.slow), "relations"])
def test_heads_stand_on_it(name, tmp_path):
    """They are saved and loaded with its settings; a head fits another model's encoder."""
    transformer, _ = model(**VARIANTS[name])
    pretraining = FOLNetForPreTraining(transformer.config)
    params = small.draw(pretraining)
    pretraining.save_pretrained(tmp_path, params)
    again, read = FOLNetForPreTraining.from_pretrained(tmp_path)
    assert again.config == transformer.config
    jax.tree.map(np.testing.assert_array_equal, params, read)
    positions = jnp.asarray([[1, 2], [0, 3]])
    out = small.quickly(functools.partial(pretraining.apply, **given(transformer)))(
        {"params": params}, IDS, TYPES, mlm_positions=positions
    )
    assert out.prediction_logits.shape == (BATCH, 2, SIZES["vocab_size"])
    alone, encoded = Transformer.from_pretrained(tmp_path)
    assert num_parameters(alone) == sum(leaf.size for leaf in jax.tree.leaves(encoded))
    _, classifying = FOLNetForSequenceClassification.from_pretrained(tmp_path, key=jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, classifying["folnet"], encoded)


def test_an_encoder_is_of_either_kind():
    """The class of the settings decides."""
    assert isinstance(encoder(BASE), FOLNet)
    assert isinstance(encoder(BERT_BASE), Transformer)
    with pytest.raises(ValueError, match="expected a FOLNetConfig or a TransformerConfig"):
        encoder(ModelConfig())


@pytest.mark.parametrize(
    ("changes", "multiple_of"), [({}, 1), ({"relative_position": "t5", "absolute_position": False}, 8)]
)
def test_matched_in_parameters(changes, multiple_of):
    """No other width is closer, and all other settings are FOLNet's."""
    sizes = {"intermediate_size": 80, "max_position_embeddings": 9}
    config = small.config(vocab_size=23, num_labels=3, dtype="bfloat16", **sizes)
    found = matched_to(config, multiple_of=multiple_of, **changes)
    assert (found.vocab_size, found.num_labels, found.dtype, found.head_size) == (23, 3, "bfloat16", 4)
    assert found.intermediate_size % multiple_of == 0
    aim = num_parameters(FOLNet(config))
    widths = [found.intermediate_size + step * multiple_of for step in (-1, 0, 1)]
    misses = [abs(num_parameters(Transformer(found.replace(intermediate_size=w))) - aim) for w in widths]
    assert misses[1] == min(misses)
    assert found.replace(intermediate_size=1) == found.replace(**changes, intermediate_size=1)


@pytest.mark.slow
def test_matched_to_base():
    """The numbers in the docstring of `matched_to`."""
    found = matched_to(BASE)
    assert found.intermediate_size == 4639
    assert num_parameters(Transformer(found)) == 138_388_596
    assert num_parameters(FOLNet(BASE)) == 138_381_952


def test_too_small_to_be_matched():
    """A FOLNet with fewer parameters than a Transformer without a feed-forward layer."""
    config = small.config(operators="j.a", intermediate_size=1, relation_intermediate_size=1)
    with pytest.raises(ValueError, match=r"config: got \d+ parameters fewer than a Transformer of width 1"):
        matched_to(config)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"input_ids": jnp.zeros((1, 10), jnp.int32)}, "input_ids: got 10 tokens, expected at most"),
        ({"input_ids": jnp.full((1, 3), 19)}, r"input_ids: got 19 at \[0, 0\], expected 0 to 18"),
        ({}, "input_ids, inputs_embeds: got None for both"),
        ({"input_ids": IDS, "attention_mask": MASK[:, 1:]}, r"attention_mask: got shape \(2, 6\)"),
        ({"input_ids": IDS, "relation_ids": RELATION_IDS}, "relation_ids"),
    ],
)
def test_arguments_that_do_not_fit(arguments, message):
    """Errors are the same as FOLNet's."""
    transformer, params = model()
    with pytest.raises(ValueError, match=message):
        transformer.apply({"params": params}, **arguments)
