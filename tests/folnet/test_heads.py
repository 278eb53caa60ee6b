"""Heads compared with the authors' recorded outputs; shapes, parameters, and inputs."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import folnet
from folnet import LARGE, FOLNetForPreTraining, heads, objective, parameters, table3
from folnet.embeddings import Tables
from folnet.heads import PredictionHead
from tests.folnet import known_dropout, small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

IDS, TYPES = small.tokens()
WITH_HEADS = (
    FOLNetForPreTraining,
    folnet.FOLNetForMaskedLM,
    folnet.FOLNetForSequenceClassification,
    folnet.FOLNetForMultipleChoice,
    folnet.FOLNetForQuestionAnswering,
)


@pytest.mark.parametrize("name", small.RECORDED)
def test_recorded_logits(name):
    """Words at the masked positions, the sentence task, classes and spans."""
    out, want = small.recorded_outputs(name), small.recorded(name)
    for got, key in (
        (out["pretraining"].prediction_logits, "mlm_logits"),
        (out["pretraining"].seq_relationship_logits, "sentence_logits"),
        (out["classification"].logits, "class_logits"),
        (out["span"].start_logits, "start_logits"),
        (out["span"].end_logits, "end_logits"),
    ):
        np.testing.assert_allclose(got, want[f"output/{key}"], atol=2e-5, err_msg=key)


@pytest.mark.parametrize("name", small.RECORDED)
def test_the_recorded_loss(name):
    """The mean over masked words plus the mean over texts; labels of -1 do not count."""
    out, want = small.recorded_outputs(name)["pretraining"], small.recorded(name)

    @small.quickly
    def losses(out, words, sentences):
        words = objective.masked_language_model(out.prediction_logits, words)
        return words, objective.sentence(out.seq_relationship_logits, sentences)

    words, sentences = losses(
        out, jnp.asarray(want["input/mlm_labels"]), jnp.asarray(want["input/nsp_labels"])
    )
    assert int(words.count) == (want["input/mlm_labels"] != -1).sum()
    np.testing.assert_allclose(words.mean + sentences.mean, want["output/pretrain_loss"][0], rtol=1e-6)


def counted(config):
    """Counts the parameters by those of the first layer: the encoder, and with both pretraining heads."""
    built, times = config.replace(num_hidden_layers=1), config.num_hidden_layers
    encoder = heads = 0
    for name, shape in parameters.shapes(FOLNetForPreTraining(built)).items():
        count = math.prod(shape) * (times if ".layers_" in name else 1)
        encoder, heads = (encoder + count, heads) if name.startswith("folnet.") else (encoder, heads + count)
    return encoder, encoder + heads


# By row of Table 3, measured on the released code: the encoder, and with the heads.
COUNTS = {
    3: (109_475_376, 110_098_034),
    4: (109_083_720, 109_706_378),
    6: (123_280_728, 123_903_386),
    7: (109_103_200, 109_725_858),
    8: (109_231_040, 109_853_698),
    9: (109_726_336, 110_348_994),
    10: (109_874_560, 110_497_218),
    11: (117_021_568, 117_644_226),
    12: (124_167_040, 124_789_698),
    13: (138_381_952, 139_004_610),
    14: (137_461_032, 138_083_690),
    15: (138_381_952, 139_004_610),
}


@pytest.mark.parametrize("row", COUNTS)
def test_parameters_of_table_3(row):
    """The counts are exact."""
    assert counted(table3(row)) == COUNTS[row]


def test_parameters_of_row_5():
    """Its positions were not released; ours are 32 buckets with the width of a relation."""
    relative = 130 * 12
    assert counted(table3(5)) == tuple(count - relative + 32 * 12 for count in COUNTS[4])


def test_parameters_of_large():
    """The counts are exact."""
    assert counted(LARGE) == (437_251_712, 438_333_890)


def test_layers_share_no_parameters():
    """Each has its own of every shape."""
    names = [list(parameters.shapes(folnet.FOLNet(small.config(num_hidden_layers=n)))) for n in (1, 3)]
    one, three = ([name for name in found if ".layers_" in name] for found in names)
    assert sorted(three) == sorted(name.replace("layers_0", f"layers_{n}") for name in one for n in range(3))


def test_parameters_of_each_operator():
    """For one layer of FOLNet Base."""
    shapes = parameters.shapes(folnet.FOLNet(table3(13).replace(num_hidden_layers=1)))
    counts: dict[str, int] = {}
    for name, shape in shapes.items():
        if name.startswith("reasoner."):
            counts[name.split(".")[2]] = counts.get(name.split(".")[2], 0) + math.prod(shape)
    assert counts == {
        "join": 1_181_952,
        "mu": 595_456,
        "cjoin": 1_184_576,
        "assoc": 1_182_016,
        "trans": 12_352,
        "prod": 595_584,
        "bool_unary": 4_722_432,
        "bool_binary": 53_632,
    }
    assert sum(counts.values()) == 9_528_000


def test_words_at_positions_are_those_of_all():
    """Both model classes have the same word head."""
    model = FOLNetForPreTraining(small.config(operators="j."))
    params = small.draw(model)
    words = folnet.FOLNetForMaskedLM(model.config)
    mine = {name: params[name] for name in ("folnet", "predictions")}
    positions = jnp.asarray([[3, 0], [6, 3]])

    @small.quickly
    def run(params, mine):
        some = small.apply(model, params, IDS, TYPES, mlm_positions=positions)
        return some.prediction_logits, small.apply(words, mine, IDS, TYPES).logits

    some, every = run(params, mine)
    want = np.take_along_axis(np.asarray(every), np.asarray(positions)[..., None], axis=1)
    np.testing.assert_allclose(some, want, atol=1e-5)
    with pytest.raises(ValueError, match=r"mlm_positions: got shape \(1, 2\), expected \[2, M\]"):
        jax.eval_shape(lambda: small.apply(model, params, IDS, TYPES, mlm_positions=positions[:1]))


def test_positions_out_of_range():
    """An error or, in compiled functions, NaN; negative ones do not count from the end."""
    unary = jnp.arange(8.0).reshape(1, 4, 2)
    with pytest.raises(ValueError, match=r"mlm_positions: got 4 at \[0, 1\], expected 0 to 3 \(the number"):
        heads.at(unary, jnp.asarray([[3, 4]]))
    found = small.quickly(heads.at)(unary, jnp.asarray([[3, 4, -1]]))
    np.testing.assert_array_equal(found[0], [[6, 7], [np.nan] * 2, [np.nan] * 2])


@pytest.mark.parametrize("cls", WITH_HEADS)
def test_logits_are_float32(cls):
    """Also when computing in bfloat16, since they are for losses."""
    model = cls(small.config(dtype="bfloat16", operators="j."))
    ids = jax.ShapeDtypeStruct((2, 3, 5) if cls is folnet.FOLNetForMultipleChoice else (2, 5), jnp.int32)
    out = jax.eval_shape(lambda key, ids: model.init_with_output(key, ids)[0], jax.random.key(0), ids)
    assert {leaf.dtype for leaf in jax.tree.leaves(out)} == {jnp.dtype("float32")}


def test_choices_are_texts_of_their_own():
    """The logit of a choice is that of its text alone, with its own base atoms."""
    model = folnet.FOLNetForMultipleChoice(small.config(operators="j.", relation_vocab_size=2))
    single = folnet.FOLNetForSequenceClassification(model.config.replace(num_labels=1))
    params = small.draw(model)
    ids = jnp.asarray(np.stack([(np.asarray(IDS) + more) % 19 for more in (0, 3, 5)], axis=1))
    types = jnp.asarray(np.stack([TYPES] * 3, axis=1))
    real = np.ones(ids.shape, bool)
    real[0, 1, -2:] = False
    mask, rng = jnp.asarray(real), np.random.default_rng(0)
    atoms = {
        "inputs_embeds": jnp.asarray(rng.normal(size=(2, 3, 7, 14)), jnp.float32),
        "relation_ids": jnp.asarray(rng.integers(-1, 2, (2, 3, 7, 7, 2))),
        "relation_embeds": jnp.asarray(rng.normal(size=(2, 3, 7, 7, 6)), jnp.float32),
    }

    @small.quickly
    def run(params):
        of_one = {name: array[:, 1] for name, array in atoms.items()}
        one = small.apply(single, params, ids[:, 1], types[:, 1], mask[:, 1], **of_one)
        return small.apply(model, params, ids, types, mask, **atoms).logits, one.logits

    logits, one = run(params)
    assert logits.shape == (2, 3)
    np.testing.assert_allclose(logits[:, 1], one[:, 0], atol=1e-5)
    with pytest.raises(ValueError, match=r"token_type_ids: got shape \(2, 7\), expected \[B, N, T\]"):
        small.apply(model, params, ids, TYPES)
    with pytest.raises(ValueError, match=r"attention_mask: got shape \(2, 2, 7\), .*, as in inputs_embeds"):
        small.apply(model, params, None, None, mask[:, 1:], inputs_embeds=atoms["inputs_embeds"])
    flat = atoms["relation_ids"].reshape(6, 7, 7, 2)
    with pytest.raises(
        ValueError, match=r"relation_ids: got shape \(6, 7, 7, 2\), expected \[B, N, T, ...\]"
    ):
        small.apply(model, params, ids, types, relation_ids=flat)


def test_choices_may_be_properties_in_place_of_tokens():
    """Those of their tokens; and without either it is the encoder that asks for one."""
    model = folnet.FOLNetForMultipleChoice(small.config(operators="j."))
    params = small.draw(model)
    ids = jnp.stack([IDS, IDS + 1], axis=1) % 19
    of_tokens = params["folnet"]["embeddings"]["word"][ids]

    @small.quickly
    def run(params):
        return [small.apply(model, params, *given, **more).logits for given, more in calls]

    calls: tuple[Any, ...] = (((ids,), {}), ((None,), {"inputs_embeds": of_tokens}))
    one, other = run(params)
    assert one.shape == (2, 2)
    np.testing.assert_allclose(one, other, atol=1e-5)
    for more in ({}, {"inputs_embeds": None}):
        with pytest.raises(ValueError, match="inputs_embeds: got None for both"):
            small.apply(model, params, None, None, jnp.ones((2, 2, 7), bool), **more)


DROPS = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}


@pytest.mark.parametrize("cls", [folnet.FOLNetForSequenceClassification, folnet.FOLNetForTokenClassification])
def test_what_is_classified_is_dropped_in_training(cls):
    """Once, before the classifier, as released: the pooled token, or every token."""
    model = cls(small.config(operators="j.", num_labels=5, **DROPS))
    params, rng = small.draw(model), np.random.default_rng(0)
    every, pooled = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 7, 14), (2, 14)))
    encoded = folnet.FOLNetOutput(jnp.asarray(every), jnp.asarray(pooled), None)
    rngs = {"dropout": small.key()}

    def head(params):
        with known_dropout.known():
            return small.apply(model, params, encoded, False, rngs=rngs, method="_head").logits

    read = pooled if cls is folnet.FOLNetForSequenceClassification else every
    want = np.asarray(read * known_dropout.weights(0.2, read.shape)) @ np.asarray(
        params["classifier"]["weight"]
    )
    got = small.quickly(head)(params)
    np.testing.assert_allclose(got, want + np.asarray(params["classifier"]["bias"]), atol=1e-5)

    def whole(key):
        return small.apply(model, params, IDS, TYPES, None, False, rngs={"dropout": key})

    drops = {(0.2, (2, 7, 14)): 3, (0.2, (2, 6, 7, 7)): 2, (0.3, (2, 3, 7, 7)): 1}
    assert known_dropout.trace(whole) == {**drops, (0.2, read.shape): drops.get((0.2, read.shape), 0) + 1}


def test_the_pooled_token_of_choices_is_dropped_in_training():
    """Once, before the classifier, as released."""
    model = folnet.FOLNetForMultipleChoice(small.config(operators="j.", **DROPS))
    params = small.draw(model)
    ids, types = (jnp.asarray(np.repeat(np.asarray(x)[:, None], 3, 1)) for x in (IDS, TYPES))

    def run(params):
        rngs = {"dropout": small.key()}
        with known_dropout.known() as drop:
            got = small.apply(model, params, ids, types, None, False, rngs=rngs).logits
        assert drop.places()[0.2, (6, small.SIZES["hidden_size"])] == 1
        with known_dropout.known():
            flat: Any = [x.reshape(6, -1) for x in (ids, types)]
            encoder: Any = model.bind({"params": params}, rngs=rngs).folnet
            return got, encoder(*flat, None, False).pooler_output

    got, pooled = jax.device_get(small.quickly(run)(params))
    pooled = pooled * np.asarray(known_dropout.weights(0.2, pooled.shape))
    want = pooled @ np.asarray(params["classifier"]["weight"]) + np.asarray(params["classifier"]["bias"])
    np.testing.assert_allclose(got, want.reshape(got.shape), atol=1e-5)


@pytest.mark.parametrize("name", ["PreTraining", "MaskedLM", "QuestionAnswering"])
def test_heads_of_single_tokens_drop_nothing(name):
    """Everything that is dropped is in the encoder, and each place has a key of its own."""
    config = small.config(operators="j.", **DROPS)
    places = []
    for cls in (getattr(folnet, f"FOLNetFor{name}"), folnet.FOLNet):
        model = cls(config)
        params = small.draw(model)

        def run(key, model=model, params=params):
            return small.apply(model, params, IDS, TYPES, None, False, rngs={"dropout": key})

        places.append(known_dropout.trace(run))
    assert places[0] == places[1]
    assert places[1] == {(0.2, (2, 7, 14)): 3, (0.2, (2, 6, 7, 7)): 2, (0.3, (2, 3, 7, 7)): 1}


@pytest.mark.parametrize("cls", WITH_HEADS)
def test_heads_pass_on_all_arguments(cls):
    """Those that the encoder refuses are refused, by the encoder's name for them."""
    model = cls(small.config(relation_vocab_size=2))
    choices = (1,) if cls is folnet.FOLNetForMultipleChoice else ()
    bad: dict[str, Any] = {
        "input_ids": np.full((2, *choices, 3), 19),
        "token_type_ids": np.full((2, *choices, 3), 2),
        "attention_mask": np.ones((2, *choices, 4)),
        "relation_ids": np.full((2, *choices, 3, 3), 2),
        "relation_embeds": np.zeros((2, *choices, 3, 3, 9)),
        "inputs_embeds": np.zeros((2, *choices, 3, 9)),
    }
    for name in bad:
        given = {"input_ids": np.zeros((2, *choices, 3), int), name: bad[name]}
        with pytest.raises(ValueError, match=f"^{name}: got"):
            model.apply({"params": {}}, **given)


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_words_are_predicted_by_their_table(activation):
    """An affine map, an activation, a normalization, the word table, and a bias, in this order."""
    config = small.config(head_activation=activation, layer_norm_eps=0.1)
    rng = np.random.default_rng(0)
    unary, word = rng.normal(size=(2, 3, 14)), rng.normal(size=(19, 14))
    head, tables = PredictionHead(config), Tables(config)

    def logits(params, unary):
        bound = tables.bind({"params": {"word": jnp.asarray(word, jnp.float32), "type": jnp.zeros((2, 14))}})
        return head.apply({"params": params}, unary, bound)

    shapes = {"transform": {"weight": (14, 14), "bias": (14,)}, "bias": (19,)}
    params = jax.tree.map(
        lambda shape: jnp.asarray(rng.normal(size=shape), jnp.float32),
        shapes,
        is_leaf=lambda x: isinstance(x, tuple),
    )
    got = small.quickly(logits)(params, jnp.asarray(unary, jnp.float32))
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    hidden = unary @ p["transform"]["weight"] + p["transform"]["bias"]
    phi = 0.5 * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))
    hidden = hidden * phi if activation == "gelu" else np.maximum(hidden, 0)
    hidden -= hidden.mean(-1, keepdims=True)
    hidden /= np.sqrt(np.square(hidden).mean(-1, keepdims=True) + 0.1)
    np.testing.assert_allclose(got, hidden @ word.T + p["bias"], atol=1e-5)
    bound = tables.bind({"params": {"word": jnp.asarray(word, jnp.float32), "type": jnp.zeros((2, 14))}})
    initial: Any = head.init(jax.random.key(0), jnp.asarray(unary, jnp.float32), bound)["params"]
    assert not any(np.any(of["bias"]) for of in (initial, initial["transform"]))
