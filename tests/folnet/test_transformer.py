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
from folnet.transformer import Transformer, TransformerLayer, matched_to, num_parameters
from folnet.transformer_configuration import BERT_BASE, TransformerConfig
from tests.folnet import known_dropout, small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

BATCH, LENGTH, RELATIONS = 2, 7, 5
HIDDEN, KERNELS = 0.2, 0.3
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
    "layer_norm_eps": 0.1,  # so that it shows
    "hidden_dropout_prob": HIDDEN,
    "attention_probs_dropout_prob": KERNELS,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "bert": {},
    "relations": {"relation_vocab_size": RELATIONS, "relative_position": "shaw"},
    "relation_bias": {
        "relation_vocab_size": RELATIONS,
        "relation_attention": "bias",
        "relative_position": "t5",
        "absolute_position": False,
        "activation": "relu",
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
def ran(name: str, training: bool = False) -> tuple[Any, dict[str, Any]]:
    """Returns a variant's outputs with a mask, in training with known dropout, and its parameters."""
    transformer, params = model(**VARIANTS[name])
    apply = small.quickly(
        functools.partial(
            transformer.apply,
            deterministic=not training,
            output_hidden_states=True,
            rngs={"dropout": small.key()},
            **given(transformer),
        )
    )
    with known_dropout.known() as drop:
        out = apply({"params": params}, IDS, TYPES, MASK)
    assert drop.places() == (PLACES if training else {})
    return out, params


KERNEL = (BATCH, SIZES["num_attention_heads"], LENGTH, LENGTH)
FEATURES = (BATCH, LENGTH, SIZES["hidden_size"])
# Embeddings, attention and feed-forward layers of two layers; attention weights.
PLACES = {(HIDDEN, FEATURES): 5, (KERNELS, KERNEL): 2}


def dropped(training: bool, text: int, length: int, rate: float, shape: Any, number: int) -> Any:
    """Returns the numbers that replace a mask for one text without its padding."""
    if not training:
        return 1.0
    known = np.asarray(known_dropout.weights(rate, shape, number), np.float64)[text]
    return known[:length] if shape is FEATURES else known[:, :length, :length]


def test_as_many_parameters_as_bert():
    """BERT base, uncased, with its pooler."""
    assert num_parameters(Transformer(BERT_BASE)) == 109_482_240


def numpy_layer(p, u, config, bias, drop, keys, values):
    """Computes a layer of BERT for one text, in loops over heads.

    `drop` multiplies the attention weights, what attention adds, and what the feed-forward layer adds.
    """

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
        kernel *= drop[0][h] if np.ndim(drop[0]) else 1
        heads.append(np.einsum("xa,xas->xs", kernel, pair_values))
    u = norm(u + affine(np.concatenate(heads, -1), a["output"]) * drop[1], p["attention_norm"])
    hidden = affine(u, p["hidden"])
    if config.activation == "gelu":
        hidden = hidden * 0.5 * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))
    else:
        hidden = np.maximum(hidden, 0)
    return norm(u + affine(hidden, p["output"]) * drop[2], p["output_norm"])


def numpy_model(name, params, text, length, training=False):
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
    place = functools.partial(dropped, training, text, length)
    u = u * place(HIDDEN, FEATURES, 0)
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
        drop = [place(KERNELS, KERNEL, layer)] + [place(HIDDEN, FEATURES, 2 * layer + n) for n in (1, 2)]
        u = numpy_layer(p[f"layers_{layer}"], u, config, bias, drop, *pair[layer])
    pooled = np.tanh(u[0] @ p["pooler"]["weight"] + p["pooler"]["bias"])
    return u, pooled


@pytest.mark.parametrize(
    ("name", "training"),
    [("bert", False), ("relations", False), ("relation_bias", False), ("relations", True)],
)
def test_it_is_its_formulas(name, training):
    """Every variant in float64; a text with padding equals the shorter text without it.

    In training the embeddings, the attention weights and both additions of a layer are dropped.
    """
    out, params = ran(name, training)
    assert out.relation_hidden_state is None
    assert len(out.hidden_states) == SIZES["num_hidden_layers"] + 1
    for text, length in enumerate(np.asarray(MASK.sum(1))):
        u, pooled = numpy_model(name, params, text, length, training)
        np.testing.assert_allclose(out.last_hidden_state[text, :length], u, atol=2e-5)
        np.testing.assert_allclose(out.pooler_output[text], pooled, atol=2e-5)


@pytest.mark.parametrize("kind", ["shaw", "bias"])
def test_without_positions_tokens_have_no_order(kind):
    """With relations alone, permuting tokens and relations permutes the features, as in a graph."""
    transformer, params = model(
        relation_vocab_size=RELATIONS, relation_attention=kind, absolute_position=False, num_hidden_layers=1
    )
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
    if kind == "bias":
        return
    # -1 everywhere equals no relations.
    none = features(IDS, TYPES, np.full(RELATION_IDS.shape, -1))
    without = small.quickly(transformer.apply)({"params": params}, IDS, TYPES).last_hidden_state
    np.testing.assert_allclose(none, without, atol=1e-6)


def test_a_layer_needs_features_only():
    """Without a bias, relations, a mask, and a key."""
    transformer, params = model()
    layer = TransformerLayer(transformer.config)
    out = jax.eval_shape(layer.apply, {"params": params["layers_0"]}, jnp.zeros(FEATURES))
    assert out.shape == FEATURES


def test_dropout_has_a_key_for_each_place():
    """None is needed if both rates are 0."""
    transformer, params = model(**VARIANTS["relations"])

    def run(key, config=transformer.config):
        options: dict[str, Any] = {
            "deterministic": False,
            **given(transformer),
            "rngs": {"dropout": key} if key is not None else {},
        }
        return Transformer(config).apply({"params": params}, IDS, TYPES, MASK, **options)

    assert known_dropout.trace(run) == PLACES
    none = transformer.config.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    jax.eval_shape(lambda: run(None, none))


def test_gradients_with_less_kept():
    """All are finite and nonzero with dropout; each policy keeps less than the one before."""
    transformer, params = model(**VARIANTS["relations"], num_hidden_layers=1)

    def total(remat):
        apply = Transformer(transformer.config.replace(remat=remat)).apply

        def of(params):
            options: dict[str, Any] = {
                "deterministic": False,
                "rngs": {"dropout": small.key()},
                **given(transformer),
            }
            out: Any = apply({"params": params}, IDS, TYPES, MASK, **options)
            return jnp.sum(jnp.sin(out.last_hidden_state)) + jnp.sum(out.pooler_output)

        return of

    with known_dropout.known():
        gradients = small.quickly(jax.grad(total("nothing_saveable")))(params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradients):
        assert np.isfinite(leaf).all(), path
        # A bias of keys adds the same to all scores of a row, but for dropout after the softmax.
        assert (np.abs(leaf).max() > 1e-4) or "['key']['bias']" in jax.tree_util.keystr(path), path
    sizes = []
    for remat in ("none", "dots_saveable", "dots_with_no_batch_dims_saveable", "nothing_saveable"):
        kept = jax.eval_shape(lambda p, remat=remat: jax.vjp(total(remat), p)[1], params)
        sizes.append(sum(leaf.size for leaf in jax.tree.leaves(kept)))
    assert sizes == sorted(set(sizes), reverse=True)


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


def test_heads_stand_on_it(tmp_path):
    """They are saved and loaded with its settings; a head fits another model's encoder."""
    transformer, _ = model(**VARIANTS["relations"])
    pretraining = FOLNetForPreTraining(transformer.config)
    params = small.draw(pretraining)
    pretraining.save_pretrained(tmp_path, params)
    again, read = FOLNetForPreTraining.from_pretrained(tmp_path)
    assert again.config == transformer.config
    jax.tree.map(np.testing.assert_array_equal, params, read)
    positions = jnp.asarray([[1, 2], [0, 3]])
    apply = functools.partial(pretraining.apply, **given(transformer))
    out = jax.eval_shape(apply, {"params": params}, IDS, TYPES, mlm_positions=positions)
    assert out.prediction_logits.shape == (BATCH, 2, SIZES["vocab_size"])
    alone, encoded = Transformer.from_pretrained(tmp_path)
    assert num_parameters(alone) == sum(leaf.size for leaf in jax.tree.leaves(encoded))
    _, classifying = FOLNetForSequenceClassification.from_pretrained(tmp_path, key=small.key())
    jax.tree.map(np.testing.assert_array_equal, classifying["folnet"], encoded)


def test_an_encoder_is_of_either_kind():
    """The class of the settings decides."""
    assert isinstance(encoder(BASE), FOLNet)
    assert isinstance(encoder(BERT_BASE), Transformer)
    with pytest.raises(ValueError, match="expected a FOLNetConfig or a TransformerConfig"):
        encoder(ModelConfig())
    pairs: tuple[Any, ...] = ((FOLNet, BERT_BASE), (Transformer, BASE))
    for cls, config in pairs:
        other = "FOLNetConfig" if cls is FOLNet else "TransformerConfig"
        message = f"config: got a {type(config).__name__}, expected a {other}"
        with pytest.raises(ValueError, match=message):
            cls(config).init(jax.random.key(0), jnp.zeros((1, 3), jnp.int32))


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


def test_matched_to_one_layer_of_base():
    """By hand: BERT's 31,520,256 parameters with FOLNet's vocabulary, and 1,336 more units of 1,537."""
    found = matched_to(BASE.replace(num_hidden_layers=1))
    assert found.intermediate_size == 3072 + 1336
    assert num_parameters(Transformer(found)) == 31_520_256 + 1336 * 1537
    assert BASE.vocab_size * 768 - BERT_BASE.vocab_size * 768 == 4608


def test_too_small_to_be_matched():
    """A FOLNet with fewer parameters than a Transformer without a feed-forward layer."""
    config = small.config(operators="j.a", intermediate_size=1, relation_intermediate_size=1)
    with pytest.raises(ValueError, match=r"config: got \d+ parameters fewer than a Transformer of width 1"):
        matched_to(config)


def test_one_step_of_width_is_the_least():
    """A step of the whole width matches; of one three times as wide, none is nearer than one."""
    config = small.config(intermediate_size=80, max_position_embeddings=9)
    width = matched_to(config).intermediate_size
    assert matched_to(config, multiple_of=width).intermediate_size == width
    with pytest.raises(ValueError, match=f"fewer than a Transformer of width {3 * width} has"):
        matched_to(config, multiple_of=3 * width)


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
