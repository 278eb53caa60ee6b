"""Baselines in place of a cell: what each is made of, causality, and what a config refuses."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import baselines, runtime
from experiments.llrnn import measures, train
from experiments.llrnn.config import Config
from experiments.llrnn.encoders import EncoderConfig
from experiments.llrnn.parts import CellConfig, TaskOptions

pytestmark = pytest.mark.usefixtures("compiled_quickly")

TASK = TaskOptions(group="S3", powers=3, operators=3, held_out=0, train_lengths=(1, 4), test_lengths=(4,))


def config_of(name, **fields):
    return Config(
        task="group_powers",
        task_options=TASK,
        encoder=EncoderConfig.of(name, **{"features": 8} | fields),
        batch_size=4,
        steps=2,
        log_every=1,
        eval_examples=8,
        final_examples=8,
    )


MADE = {
    "transformer": (
        {"layers": 3, "heads": 2, "hidden": 5},
        baselines.Transformer(3, 2, 5, positions="rotary", causal=True),
    ),
    "lstm": ({"layers": 2, "state": 5}, baselines.LSTM(5, 2)),
    "full_matrix": (
        {"column_norm": 1.2, "state": 5},
        baselines.RecurrentEncoder(baselines.FullMatrixCell(5, 1.2)),
    ),
    "delta_product": (
        {"layers": 2, "heads": 2, "hidden": 5, "steps": 3},
        baselines.RecurrentEncoder(baselines.DeltaProductCell(2, 4, 3), 2, 5),
    ),
    "content_ntm": (
        {"memory_size": 6, "memory_width": 3, "state": 5},
        baselines.RecurrentEncoder(baselines.ContentNTMCell(5, 6, 3)),
    ),
    "mlp_operator": (
        {"hidden": 5, "operators": 7, "state": 6},
        baselines.RecurrentEncoder(baselines.MLPOperatorCell(6, 7, 5)),
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_fields_reach_the_baseline(name):
    fields, expected = MADE[name]
    config = config_of(name=name, **fields)
    config.validate()
    model = config.make_model(config.make_task())
    assert model.encoder == expected
    assert (model.features, model.num_outputs) == (8, 6)
    assert config.model_name == name


def test_the_state_has_as_many_features_as_the_tokens_by_default():
    for name in ("lstm", "full_matrix", "content_ntm", "mlp_operator"):
        implied, same, other = (EncoderConfig.of(name, 9, state=state).make() for state in (None, 9, 8))
        assert implied == same != other


def test_the_fields_of_every_encoder_are_tested():
    assert set(MADE) == set(EncoderConfig.variants) - {"none"}
    for name, (fields, _) in MADE.items():
        assert set(fields) == {field.name for field in dataclasses.fields(EncoderConfig.variants[name])} - {
            "name",
            "features",
        }


@pytest.mark.parametrize("name", MADE)
def test_no_output_depends_on_later_tokens(name):
    config = config_of(name=name, **({"layers": 1} if name == "transformer" else {}))
    task = config.make_task()
    model = config.make_model(task)
    tokens = np.array([[[0, 1], [1, 0], [2, 1], [1, 1]]], np.int32)
    changed = tokens.copy()
    changed[0, 2] = (1, 0)
    both = np.asarray(task.encode(jnp.asarray(np.concatenate([tokens, changed]))))
    shapes = jax.eval_shape(model.init, jax.random.key(0), both)["params"]
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: rng.normal(scale=0.4, size=leaf.shape).astype("f4"), shapes)
    first, second = np.asarray(jax.jit(functools.partial(measures.predict, model))(params, both))
    np.testing.assert_allclose(first[:2], second[:2], rtol=1e-5, atol=1e-6)
    assert np.abs(first[2] - second[2]).max() > 1e-4


def test_an_encoder_is_trained_and_measured_under_its_name(monkeypatch):
    """What the training gets is traced, and only the measuring compiled."""
    handed = {}
    config = config_of(name="mlp_operator")
    ended = runtime.FitResult(None, None, config.steps, {}, {}, 1.0, {})
    monkeypatch.setattr(runtime, "fit", lambda config, **given: handed.update(given) or ended)
    assert set(train.main(config, workdir=None, parallel="pmap")) == {"mlp_operator"}
    assert handed["parallel"] == "pmap"
    shapes = jax.eval_shape(handed["init"], jax.random.key(0))
    assert set(shapes) == {"embed", "encoder", "outputs"}

    def gradient(params, key):
        batch = handed["sample"](key, 0)
        return jax.grad(lambda params: handed["loss"](params, batch, key).numerator)(params)

    traced = jax.eval_shape(gradient, shapes, jax.random.key(0))
    assert jax.tree.map(lambda leaf: leaf.shape, traced) == jax.tree.map(lambda leaf: leaf.shape, shapes)
    found = handed["conclude"](jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes))
    assert 0 <= found["train/error_4"]["error"] <= 1
    assert "program" not in found


def test_the_baseline_of_a_preset_is_a_cell():
    config = dataclasses.replace(config_of(name="lstm"), baseline=CellConfig.of("elman"))
    alone = config.for_baseline(1.0)
    assert (alone.model_name, alone.encoder) == ("elman", EncoderConfig())


def test_a_delta_product_may_have_one_head():
    config_of(name="delta_product", heads=1).validate()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "gru"}, r"name: got 'gru', expected one of 'none', 'transformer', 'delta_product', 'lstm'"),
        ({"name": "delta_product", "heads": 3}, r"encoder\.heads: got 3, expected a divisor of encoder.feat"),
        ({"name": "delta_product", "heads": 0}, r"encoder\.heads: got 0, expected a divisor of encoder.feat"),
        ({"name": "transformer", "heads": 3}, r"num_heads: got 3, expected a divisor of the features"),
        ({"name": "lstm", "features": 0}, r"features: got 0, expected at least 1"),
    ],
)
def test_a_mistake_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        config_of(**change).validate()


def test_an_encoder_has_no_table_and_no_second_output_layer():
    config = config_of(name="lstm")
    with pytest.raises(ValueError, match=r"table_lr: got 0\.1, expected 0 with 'lstm', which has no table"):
        dataclasses.replace(config, table_lr=0.1).validate()
    with pytest.raises(ValueError, match=r"hidden_outputs: got 3, expected 0 with encoder\.name='lstm'"):
        dataclasses.replace(config, hidden_outputs=3).validate()
