"""Heads compared with the authors' recorded outputs; shapes, parameters, and inputs."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import folnet
from folnet import LARGE, FOLNetForPreTraining, objective, parameters, table3
from tests.folnet import small

IDS, TYPES = small.tokens()


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
    words = objective.masked_language_model(out.prediction_logits, jnp.asarray(want["input/mlm_labels"]))
    sentences = objective.sentence(out.seq_relationship_logits, jnp.asarray(want["input/nsp_labels"]))
    assert int(words.count) == (want["input/mlm_labels"] != -1).sum()
    np.testing.assert_allclose(words.mean + sentences.mean, want["output/pretrain_loss"][0], rtol=1e-6)


def counted(config, whole=False):
    """Counts the parameters of a one-layer encoder, alone and with both pretraining heads."""
    built = config if whole else config.replace(num_hidden_layers=1)
    times = config.num_hidden_layers // built.num_hidden_layers
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


@pytest.mark.slow
def test_parameters_of_all_layers():
    """Layers share no parameters."""
    assert counted(table3(13), whole=True) == COUNTS[13]
    assert counted(LARGE, whole=True) == counted(LARGE)


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
    model = FOLNetForPreTraining(small.config(operators="j.a"))
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
        small.apply(model, params, IDS, TYPES, mlm_positions=positions[:1])


@pytest.mark.parametrize(
    "cls",
    [
        FOLNetForPreTraining,
        folnet.FOLNetForMaskedLM,
        folnet.FOLNetForSequenceClassification,
        folnet.FOLNetForMultipleChoice,
        folnet.FOLNetForQuestionAnswering,
    ],
)
def test_logits_are_float32(cls):
    """Also when computing in bfloat16, since they are for losses."""
    model = cls(small.config(dtype="bfloat16"))
    ids = jax.ShapeDtypeStruct((2, 3, 5) if cls is folnet.FOLNetForMultipleChoice else (2, 5), jnp.int32)
    out = jax.eval_shape(lambda key, ids: model.init_with_output(key, ids)[0], jax.random.key(0), ids)
    assert {leaf.dtype for leaf in jax.tree.leaves(out)} == {jnp.dtype("float32")}


def test_choices_are_texts_of_their_own():
    """The logit of a choice is that of its text alone."""
    model = folnet.FOLNetForMultipleChoice(small.config(operators="j.a"))
    single = folnet.FOLNetForSequenceClassification(model.config.replace(num_labels=1))
    params = small.draw(model)
    ids = jnp.stack([IDS, (IDS + 3) % 19, (IDS + 5) % 19], axis=1)
    types = jnp.stack([TYPES] * 3, axis=1)
    mask = jnp.ones(ids.shape, bool).at[0, 1, -2:].set(False)

    @small.quickly
    def run(params):
        one = small.apply(single, params, ids[:, 1], types[:, 1], mask[:, 1])
        return small.apply(model, params, ids, types, mask).logits, one.logits

    logits, one = run(params)
    assert logits.shape == (2, 3)
    np.testing.assert_allclose(logits[:, 1], one[:, 0], atol=1e-5)
    with pytest.raises(ValueError, match=r"token_type_ids: got shape \(2, 7\), expected \[B, N, T\]"):
        small.apply(model, params, ids, TYPES)


@pytest.mark.slow
def test_the_pooled_token_is_dropped_in_training():
    """Dropout precedes the classifier, as released: one text gives several logits."""
    model = folnet.FOLNetForSequenceClassification(
        small.config(operators="j.a", attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.5)
    )
    params = jax.tree.map(jnp.zeros_like, small.draw(model))
    # Nothing but the pooler's bias comes through, and it is dropped or doubled.
    params["folnet"]["pooler"]["bias"] += 100
    params["classifier"]["weight"] += 1

    @small.quickly
    def run(key):
        return small.apply(model, params, IDS, TYPES, None, False, rngs={"dropout": key}).logits

    width = small.SIZES["hidden_size"]
    draws = np.stack([run(small.key(seed)) for seed in range(3)])
    assert set(np.unique(draws)) <= set(2.0 * np.arange(width + 1))
    assert len(np.unique(draws)) > 2
