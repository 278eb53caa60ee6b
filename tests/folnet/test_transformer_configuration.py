"""Settings of Transformers: BERT base by default, and validation."""

import dataclasses

import pytest

from folnet.configuration import BASE
from folnet.settings import ModelConfig
from folnet.transformer_configuration import BERT_BASE, TransformerConfig


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_distance": 0}, "max_distance: got 0, expected an integer of at least 1"),
        ({"hidden_size": 0}, "hidden_size: got 0, expected an integer of at least 1"),
        ({"relation_vocab_size": -1}, "relation_vocab_size: got -1, expected an integer of at least 0"),
        (
            {"relative_position": "folnet"},
            "relative_position: got 'folnet', expected one of 'none', 't5', 'shaw'",
        ),
        ({"relation_attention": "t5"}, "relation_attention: got 't5', expected one of 'shaw', 'bias'"),
        ({"activation": "reglu"}, "activation: got 'reglu', expected one of 'gelu', 'relu'"),
        ({"remat": "relation_boolean"}, "remat: got 'relation_boolean', expected one of 'none'"),
        ({"absolute_position": 1}, "absolute_position: got 1, expected True or False"),
        ({"dtype": "int8"}, "dtype: got 'int8', expected the name of a floating-point type"),
        (
            {"relative_position": "t5", "relative_attention_num_buckets": 6},
            "relative_attention_num_buckets: got 6, expected a multiple of 4",
        ),
    ],
)
def test_fields_that_cannot_be(fields, message):
    """The error gives name, value and expectation."""
    with pytest.raises(ValueError, match=message):
        TransformerConfig(**fields)


def test_bert():
    """The rates and epsilons of Devlin et al. (2019), and the distance of Shaw et al. (2018)."""
    assert (BERT_BASE.vocab_size, BERT_BASE.max_position_embeddings) == (30522, 512)
    assert BERT_BASE.layer_norm_eps == 1e-12
    assert (BERT_BASE.hidden_dropout_prob, BERT_BASE.attention_probs_dropout_prob) == (0.1, 0.1)
    assert (BERT_BASE.activation, BERT_BASE.relative_position, BERT_BASE.max_distance) == ("gelu", "none", 16)
    assert BERT_BASE.absolute_position
    assert BERT_BASE.relation_attention == "shaw"
    TransformerConfig(max_distance=1)


def test_fields_of_the_other_kind_are_refused():
    """Transformers have no operators, FOLNets no vectors of pairs."""
    with pytest.raises(ValueError, match="fields: got 'operators', expected only absolute_position"):
        TransformerConfig.from_dict({"operators": "j.a"})
    with pytest.raises(ValueError, match="fields: got 'relation_attention'"):
        BASE.replace(relation_attention="bias")


def test_there_and_back():
    """The dictionary has all fields, shared ones included."""
    config = TransformerConfig(relative_position="shaw", relation_vocab_size=3)
    assert TransformerConfig.from_dict(config.to_dict()) == config
    common = {field.name for field in dataclasses.fields(ModelConfig)}
    assert common <= set(config.to_dict()) & set(BASE.to_dict())
    assert config.model_type != BASE.model_type


@pytest.mark.parametrize(
    ("fields", "rows"),
    [
        ({}, 0),
        ({"relation_vocab_size": 5}, 5),
        ({"relation_vocab_size": 5, "relation_attention": "bias"}, 0),
        ({"relative_position": "shaw"}, 33),
        ({"relative_position": "shaw", "relation_vocab_size": 5, "max_distance": 2}, 10),
    ],
)
def test_rows_of_the_tables_of_pairs(fields, rows):
    """One for each clipped distance in both directions and 0, and one for each relation."""
    assert BERT_BASE.replace(**fields).num_pair_vectors == rows
