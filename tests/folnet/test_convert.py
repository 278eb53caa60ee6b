"""The authors' checkpoints: names and settings in both directions, and complete reports of mismatches."""

import logging

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import folnet
from folnet import (
    FOLNet,
    FOLNetConfig,
    FOLNetForPreTraining,
    FOLNetForSequenceClassification,
    FOLNetForTokenClassification,
    convert,
    parameters,
)
from folnet.transformer_configuration import TransformerConfig
from tests.folnet import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

NAME = "folnet_full"
UNUSED = {"max_span", "span_dim", "aux_length", "glob_size", "span_size", "unit_size"}


@pytest.mark.parametrize("name", small.RECORDED)
def test_there_and_back(name):
    """A recorded checkpoint is recovered from our parameters: every number and every setting that is read."""
    config, state = small.recorded(name)["config"], small.recorded_state(name)
    ours, params = convert.from_torch(config, state)
    again, back = convert.to_torch(ours, params)
    assert set(back) == set(state)
    for key, want in state.items():
        np.testing.assert_array_equal(back[key], want)
        assert back[key].flags.c_contiguous
    assert set(again) == set(config)
    assert {k: v for k, v in again.items() if k not in UNUSED} == {
        k: v for k, v in config.items() if k not in UNUSED
    }
    assert convert.from_torch_config(again) == ours


CLASSES = (
    FOLNet,
    FOLNetForPreTraining,
    folnet.FOLNetForMaskedLM,
    FOLNetForSequenceClassification,
    folnet.FOLNetForMultipleChoice,
    folnet.FOLNetForQuestionAnswering,
)


@pytest.mark.parametrize("cls", CLASSES)
def test_back_and_there(cls):
    """Our parameters are recovered, for every class and every option of the released code."""
    config = small.config(
        operators="cm.pta",
        absolute_position=True,
        diagonal_link=True,
        activation="reglu",
        head_activation="relu",
        num_labels=3,
        initializer_range=-1.0,
        layer_norm_eps=1e-5,
        type_vocab_size=3,
        hidden_dropout_prob=0.2,
        attention_probs_dropout_prob=0.2,
        pretrain_loss="MLM",
    )
    params = small.draw(cls(config))
    theirs, state = convert.to_torch(config, params)
    assert convert.class_of(theirs, state) is cls
    found, again = convert.from_torch(theirs, state, model=cls)
    assert found == config
    chex.assert_trees_all_equal(again, params)


def test_names_of_options():
    """Names in the released code of the diagonal link and ReGLU, which no recorded model has."""
    config = small.config(operators="j.a", diagonal_link=True, activation="reglu")
    theirs, state = convert.to_torch(config, small.draw(FOLNet(config)))
    for name, shape in {
        "folnet.encoder.diag.weight": (6, 14),
        "folnet.diag.weight": (14, 6),
        "folnet.reasoner.layers.0.deducers.1.operators.1.0.clause_in.gating.weight": (22, 14),
        "folnet.reasoner.layers.0.deducers.1.operators.2.0.clause_in.direct.bias": (10,),
    }.items():
        assert state[name].shape == shape
    assert theirs["boolean_type"] == "reglu"


def test_the_file_of_several_devices():
    """Names have the prefix "module.", and numbers half precision."""
    state = {f"module.{k}": v.astype(jnp.bfloat16) for k, v in small.recorded_state(NAME).items()}
    _, params = convert.from_torch(small.recorded(NAME)["config"], state)
    want = small.recorded_state(NAME)["folnet.dense.weight"].astype(jnp.bfloat16).astype(np.float32).T
    np.testing.assert_array_equal(params["folnet"]["pooler"]["weight"], want)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}


def test_other_heads_are_left_out_and_reported(caplog):
    """Loading a pretrained model's encoder leaves out its word and sentence heads."""
    config, state = small.recorded(NAME)["config"], small.recorded_state(NAME)
    state["sch.dense.weight"] = np.zeros((32, 32), np.float32)
    with caplog.at_level(logging.INFO, logger="folnet.convert"):
        _, params = convert.from_torch(config, state, model=FOLNet)
    left = convert.left_out(config, state, FOLNet)
    assert sorted(left) == sorted(name for name in state if not name.startswith("folnet."))
    assert all(name in caplog.text for name in left)
    assert set(parameters.flatten(params)) == set(
        parameters.shapes(FOLNet(convert.from_torch_config(config)))
    )
    assert convert.left_out(config, state, FOLNetForPreTraining) == ["sch.dense.weight"]


def test_a_head_that_is_missing_is_drawn_with_a_key_only():
    """Fine-tuning starts from a pretrained encoder."""
    config, state = small.recorded(NAME)["config"], small.recorded_state(NAME)
    with pytest.raises(
        ValueError, match=r"(?s)classifier.bias: missing.*classifier.weight: missing, expected \(3, 32\)"
    ):
        convert.from_torch(config, state, model=FOLNetForSequenceClassification)
    with pytest.raises(ValueError, match=r"classifier.weight: missing"):  # which the authors do not have
        convert.from_torch(config, state, model=FOLNetForTokenClassification)
    key = jax.random.key(0)
    _, params = convert.from_torch(config, state, model=FOLNetForSequenceClassification, key=key)
    assert params["classifier"]["weight"].shape == (32, 3)
    assert 0.01 < float(params["classifier"]["weight"].std()) < 0.03


def test_tensors_that_do_not_fit_are_reported_at_once():
    """By the authors' names and shapes."""
    config, state = small.recorded(NAME)["config"], small.recorded_state(NAME)
    del state["folnet.dense.bias"]
    state["folnet.encoder.glob_embd.weight"] = np.zeros((64, 5))
    writer = "folnet.reasoner.layers.1.deducers.0.operators.2.0.writer.weight"
    state[writer] = state[writer].T
    state["cls.heads.predictions.decoder.weight"] = state["cls.heads.predictions.decoder.weight"] + 1
    with pytest.raises(ValueError, match="state_dict: does not fit FOLNetForPreTraining") as caught:
        convert.from_torch(config, state)
    for line in (
        "folnet.dense.bias: missing, expected (32,)",
        "folnet.encoder.glob_embd.weight: got (64, 5), expected no such parameter",
        f"{writer}: got shape (4, 8), expected (8, 4)",
        "decoder.weight: got other values than folnet.encoder.word_embd.weight",
    ):
        assert line in str(caught.value)
    # A key draws heads, never an encoder.
    with pytest.raises(ValueError, match=r"folnet\.dense\.bias: missing"):
        convert.from_torch(config, state, key=jax.random.key(0))


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"num_heads": None, "head_size": None}, ["num_heads: missing", "head_size: missing"]),
        ({"layers": 3, "depth": 2}, ["layers: unknown", "depth: unknown, expected one of absolute"]),
        (
            {"mixer_ops": {"0": ["join"], "1": ["join", "trans"], "2": ["perm"]}},
            ["mixer_ops['0']: got ('join',)", "mixer_ops['1']: got 'trans'", "mixer_ops['2']: got 'perm'"],
        ),
        ({"predicate_dims": [0, 32]}, ["predicate_dims: got [0, 32], expected three numbers"]),
        ({"predicate_dims": [0, float("inf"), 4]}, ["predicate_dims: got [0, inf, 4], expected integers"]),
        ({"hidden_size": 33}, ["hidden_size: got 33, expected 32 (predicate_dims[1])"]),
        (
            {"hidden_act": "swish", "boolean_type": "moe"},
            ["hidden_act: got 'swish', expected 'gelu' or 'relu'", "boolean_type: got 'moe'"],
        ),
        ({"num_layers": 0}, ["num_hidden_layers: got 0"]),
    ],
)
def test_settings_that_are_not_understood(changes, messages):
    """The error lists all of them."""
    config = {**small.recorded(NAME)["config"], **changes}
    config = {key: value for key, value in config.items() if value is not None}
    with pytest.raises(ValueError, match="config: does not fit") as caught:
        convert.from_torch_config(config)
    assert all(message in str(caught.value) for message in messages), str(caught.value)


def test_settings_may_be_left_out_or_counted():
    """The released code has defaults too; keys of mixers may be integers, as they were before JSON."""
    config = dict(small.recorded(NAME)["config"])
    want = convert.from_torch_config(config)
    for name in ("diag_link", "relative_position", "absolute_position", "boolean_type", *UNUSED):
        del config[name]
    config["mixer_ops"] = {int(arity): names for arity, names in config["mixer_ops"].items()}
    config["pretrain_loss"] += ".SCL"
    config["predicate_dims"] = [None, *config["predicate_dims"][1:]]  # no model has atoms of arity 0
    assert convert.from_torch_config(config) == want


def test_settings_that_are_left_out_have_the_defaults():
    """All but the sizes that every checkpoint states."""
    config = small.recorded(NAME)["config"]
    few = {name: config[name] for name in convert.REQUIRED}
    found = convert.from_torch_config(few)
    want = FOLNetConfig(
        vocab_size=48,
        hidden_size=32,
        relation_size=8,
        num_hidden_layers=2,
        num_attention_heads=4,
        head_size=8,
        intermediate_size=64,
        relation_intermediate_size=16,
    )
    assert found == want
    # One class score and no number of classes is regression, not multiple choice.
    one = {"classifier.weight": np.zeros((1, 32))}
    assert convert.class_of(few, one) is FOLNetForSequenceClassification
    assert convert.class_of({**few, "num_classes": 2}, one) is folnet.FOLNetForMultipleChoice


def test_settings_that_the_released_code_has_not():
    """The error lists all of them."""
    config = small.config(
        relative_position="t5", activation="implication", cjoin="paper", attention_probs_dropout_prob=0.0
    )
    with pytest.raises(ValueError, match="config: the released code has no such settings") as caught:
        convert.to_torch(config, small.draw(FOLNet(config)))
    for name in ("relative_position", "activation", "cjoin", "attention_probs_dropout_prob"):
        assert f"{name}: got " in str(caught.value)


def test_the_released_code_has_512_absolute_positions():
    """Without them any number may be set."""
    config = small.config(operators="j.a", max_position_embeddings=9)
    convert.to_torch_config(config)
    convert.to_torch_config(config.replace(absolute_position=True, max_position_embeddings=512))
    with pytest.raises(ValueError, match="max_position_embeddings: got 9, expected 512"):
        convert.to_torch_config(config.replace(absolute_position=True))


def test_a_transformer_is_none_of_theirs():
    """Although heads accept it."""
    config = TransformerConfig()
    with pytest.raises(ValueError, match="config: got a TransformerConfig, expected a FOLNetConfig"):
        convert.to_torch(config, {})


def test_parameters_of_no_model():
    """The error uses our names."""
    config = small.config(operators="j.a")
    params = small.draw(FOLNet(config))
    del params["pooler"]
    with pytest.raises(ValueError, match=r"pooler\.weight: missing"):
        convert.to_torch(config, params)
