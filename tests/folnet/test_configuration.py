"""Settings: validation, the paper's values, serialization."""

import json

import pytest

from folnet.configuration import BASE, LARGE, FOLNetConfig, table3
from tests.folnet import small


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        ("ja", "operators: got 'ja', expected letters out of 'jmc', a dot"),
        ("j.a.t", "operators: got 'j.a.t', expected letters out of"),
        (3, "operators: got 3, expected letters"),
        ("t.a", r"expected only 'j' \(join\).* before the dot: 't' \(trans\) belongs after the dot"),
        ("j.am", r"expected only 'a' \(assoc\).* after the dot: 'm' \(mu\) belongs before the dot"),
        ("jb.a", r"'b' \(bool\) is always present and not written"),
        ("j.ax", "after the dot: 'x' is not an operator"),
        ("jj.a", "expected each letter once"),
        (".", "expected at least one operator"),
    ],
)
def test_operators_that_cannot_be(operators, message):
    """The error says what is wrong and what is possible."""
    with pytest.raises(ValueError, match=message):
        FOLNetConfig(operators=operators)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("vocab_size", 0, "vocab_size: got 0, expected an integer of at least 1"),
        ("hidden_size", 2.0, "hidden_size: got 2.0, expected an integer"),
        ("num_hidden_layers", True, "num_hidden_layers: got True"),
        ("num_hidden_layers", 10**9, "num_hidden_layers: got 1000000000, expected at most 1000"),
        ("hidden_size", 10**20, "hidden_size: got 100000000000000000000, expected an integer below"),
        ("max_distance", 1, "max_distance: got 1, expected an integer of at least 2"),
        ("relation_vocab_size", -1, "relation_vocab_size: got -1, expected an integer of at least 0"),
        (
            "relative_position",
            "rotary",
            "relative_position: got 'rotary', expected one of 'folnet', 't5', 'none'",
        ),
        ("activation", "swish", "activation: got 'swish', expected one of 'gelu'"),
        ("head_activation", "reglu", "head_activation: got 'reglu', expected one of 'gelu', 'relu'"),
        ("cjoin", "both", "cjoin: got 'both'"),
        ("remat", "all", "remat: got 'all', expected one of 'none'"),
        ("problem_type", "ranking", "problem_type: got 'ranking'"),
        ("diagonal_link", 1, "diagonal_link: got 1, expected True or False"),
        ("hidden_dropout_prob", 1, "hidden_dropout_prob: got 1, expected a number of at least 0 and below 1"),
        ("attention_probs_dropout_prob", -0.1, "attention_probs_dropout_prob: got -0.1"),
        ("layer_norm_eps", 0, "layer_norm_eps: got 0, expected a number above 0"),
        ("initializer_range", "small", "initializer_range: got 'small', expected a number"),
        ("pretrain_loss", "MLM.SCL", "pretrain_loss: got 'MLM.SCL', expected 'MLM', 'NSP', 'SOP'"),
        ("pretrain_loss", "MLM.MLM", "each at most once"),
        ("dtype", "int32", "dtype: got 'int32', expected the name of a floating-point type"),
        ("dtype", "float31", "dtype: got 'float31'"),
        ("labels", ["no", "yes"], r"labels: got \['no', 'yes'\], expected a tuple of names"),
        ("labels", ("no", 1), r"labels: got \('no', 1\), expected a tuple of names"),
        ("labels", ("no",), r"labels: got \('no',\), expected num_labels = 2 different names"),
    ],
)
def test_fields_that_cannot_be(field, value, message):
    """The error gives name, value and expectation."""
    with pytest.raises(ValueError, match=message):
        FOLNetConfig(**{field: value})


@pytest.mark.parametrize(
    ("count", "distance", "message"),
    [(30, 128, "num_buckets: got 30, expected a multiple of 4"), (32, 8, "max_distance: got 8, expected")],
)
def test_buckets_that_cannot_be(count, distance, message):
    """Only checked where buckets are used."""
    fields = {"relative_attention_num_buckets": count, "relative_attention_max_distance": distance}
    FOLNetConfig(**fields)
    with pytest.raises(ValueError, match=message):
        FOLNetConfig(relative_position="t5", **fields)


def test_the_order_of_operators_is_kept():
    """It is the order of sums and of names in checkpoints."""
    assert FOLNetConfig(operators="cjm.pa").unary_operators == ("cjoin", "join", "mu")
    assert FOLNetConfig(operators="cjm.pa").binary_operators == ("prod", "assoc")
    assert FOLNetConfig(operators="j.").binary_operators == ()


def test_there_and_back_through_json():
    """All fields, with settings that differ from the defaults."""
    config = small.config(
        operators="mj.tp", relative_position="t5", activation="implication", dtype="bfloat16"
    )
    assert FOLNetConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert config.replace(dtype="float32").dtype == "float32"


def test_unknown_fields_are_all_named():
    """The error lists the known fields."""
    with pytest.raises(ValueError, match=r"fields: got 'heads', 'layers', expected only absolute_position"):
        FOLNetConfig.from_dict({"layers": 3, "heads": 2, "vocab_size": 5})
    with pytest.raises(ValueError, match="fields: got 'depth'"):
        BASE.replace(depth=3)


def test_every_size_is_an_integer_from_one():
    """All fields with a size as default; the number of relations may be 0."""
    sizes = [name for name, value in BASE.to_dict().items() if type(value) is int]
    assert len(sizes) == 15
    for name in sizes:
        least = {"relation_vocab_size": 0, "max_distance": 2}.get(name, 1)
        if name != "relative_attention_max_distance":  # compared with the number of buckets
            BASE.replace(**{name: least})
            if name != "num_hidden_layers":
                BASE.replace(**{name: 2**31 - 1})
            for value in (least - 1, 2.0, True, 2**31):
                with pytest.raises(ValueError, match=f"{name}: got {value}, expected"):
                    BASE.replace(**{name: value})


def test_bounds_of_fields():
    """Values at the ends of their ranges are accepted."""
    BASE.replace(hidden_dropout_prob=0, attention_probs_dropout_prob=0.999, initializer_range=-1)
    BASE.replace(num_hidden_layers=1000, pretrain_loss="SOP", relative_attention_max_distance=9)
    BASE.replace(pretrain_loss="SOP.NSP.MLM", labels=("no", "yes"))
    BASE.replace(relative_position="t5", relative_attention_max_distance=9)
    for name in (
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "layer_norm_eps",
        "initializer_range",
    ):
        with pytest.raises(ValueError, match=f"{name}: got True, expected a number"):
            BASE.replace(**{name: True})
    with pytest.raises(ValueError, match="pretrain_loss: got 3, expected 'MLM'"):
        BASE.replace(pretrain_loss=3)
    with pytest.raises(ValueError, match="dtype: got 3, expected the name"):
        BASE.replace(dtype=3)


def test_the_paper_s_settings():
    """Table 8, rows of Table 3, and defaults of the released code."""
    assert (BASE.vocab_size, BASE.type_vocab_size, BASE.num_labels) == (30528, 2, 2)
    assert (BASE.hidden_dropout_prob, BASE.attention_probs_dropout_prob) == (0.1, 0.1)
    assert (BASE.layer_norm_eps, BASE.initializer_range) == (1e-12, 0.02)
    assert (BASE.max_distance, BASE.max_position_embeddings) == (64, 512)
    assert (BASE.relative_attention_num_buckets, BASE.relative_attention_max_distance) == (32, 128)
    assert (BASE.activation, BASE.head_activation, BASE.cjoin) == ("gelu", "gelu", "released")
    assert (BASE.pretrain_loss, BASE.dtype, BASE.remat) == ("MLM.NSP", "float32", "none")
    assert not BASE.absolute_position
    assert not BASE.diagonal_link
    assert table3(13) == BASE
    assert table3(15) == BASE.replace(pretrain_loss="MLM.SOP")
    assert (LARGE.num_attention_heads * LARGE.head_size, LARGE.num_hidden_layers) == (1024, 24)
    assert table3(5) == table3(4).replace(relative_position="t5")
    assert [table3(row).operators for row in range(9, 14)] == ["j.a", "j.at", "j.atp", "jm.atp", "jmc.atp"]
    for row in (2, 16, "3"):
        with pytest.raises(ValueError, match="expected 3 to 15"):
            table3(row)  # pyrefly: ignore[bad-argument-type]
