"""Configs of the mathematics experiment: the presets, a matched baseline, mistakes by name."""

import dataclasses

import pytest

from experiments.mathematics.config import ModelConfig, get_config
from tests.experiments.mathematics.small import MODEL, small, with_data, with_model


def test_the_preset_paper_is_the_papers():
    """Sizes and optimisation of sections 3 and 4, and the number of weights of table 1."""
    config = get_config("paper")
    assert config.model.parameters() == 49_178_112
    transformer = dataclasses.replace(config.model, name="transformer")
    assert transformer.parameters() == 44_187_648
    assert (config.lr, config.b1, config.b2, config.clip) == (1e-4, 0.9, 0.995, 0.1)
    assert (config.batch_size, config.warmup_steps, config.data.modules) == (1024, 0, ())


@pytest.mark.parametrize("preset", ["quick", "paper", "modules"])
def test_presets_are_valid(preset):
    get_config(preset).validate()


def test_a_baseline_can_have_as_many_parameters():
    model = get_config("paper").model
    baseline = small(model=model, baseline=ModelConfig(name="transformer", filter_features=0)).for_baseline()
    assert baseline.model.name == "transformer"
    assert abs(baseline.model.parameters() / model.parameters() - 1) < 2e-4
    assert baseline.model.filter_features > 2048
    assert not baseline.has_baseline


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (with_data(modules=("numbers__gdc",)), r"got 'numbers__gdc', expected .* such as numbers__gcd"),
        (with_data(modules=()), r"data.modules: got none, expected modules because data.directory"),
        (
            with_data(split="interpolate"),
            r"data.split: got 'interpolate', expected one of 'train', 'train-easy'",
        ),
        (with_data(buckets=("54",)), r"data.buckets: got '54', expected lengths such as '64x14'"),
        (
            with_data(buckets=("54x8", "36x8")),
            r"data.buckets: got \(54, 8\) before \(36, 8\), expected increasing",
        ),
        (with_data(train=100), r"train: got 100, expected a nonnegative multiple of 3"),
        (with_data(extrapolation=("numbers__gcd",)), r"modules of extrapolate: got 'numbers__gcd', expected"),
        (with_model(name="lstm"), r"model.name: got 'lstm', expected one of 'tp_transformer', 'transformer'"),
        (with_model(dtype="float16"), r"model.dtype: got 'float16', expected one of 'float32', 'bfloat16'"),
        (with_model(features=15), r"features: got 15, expected an even multiple"),
        (with_model(initialization="he"), r"model.initialization: got 'he', expected one of"),
        (with_model(filter_features=0), r"model.filter_features: got 0, expected at least 1"),
        (small(b2=1.0), r"b2: got 1.0, expected a value in \[0, 1\)"),
        (small(role_head=2), r"role_head: got 2, expected one of 0, 1"),
        (
            small(baseline=with_model(name="gru").model),
            r"baseline.name: got 'gru', expected one of 'tp_transformer'",
        ),
        (
            small(baseline=dataclasses.replace(MODEL, features=64, filter_features=0)),
            r"baseline.features: got 64",
        ),
    ],
)
def test_a_mistake_in_a_config_is_named(config, message):
    with pytest.raises(ValueError, match=message):
        config.validate()
