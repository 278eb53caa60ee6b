"""Configs of the mathematics experiment: the presets, a matched baseline, mistakes by name."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import runtime
from experiments.mathematics import EXPERIMENT
from experiments.mathematics.config import Config, DataConfig, ModelConfig, get_config
from tests.experiments.mathematics.small import MODEL, small, with_data, with_model
from tp_transformer import mathematics

ROOT = Path(__file__).parents[3]


def test_the_preset_paper_is_the_papers():
    """Sizes and optimisation of sections 3 and 4, and the number of weights of table 1."""
    config = get_config("paper")
    assert config.model.parameters() == 49_178_112
    transformer = dataclasses.replace(config.model, name="transformer")
    assert transformer.parameters() == 44_187_648
    assert (config.lr, config.b1, config.b2, config.clip) == (1e-4, 0.9, 0.995, 0.1)
    assert (config.batch_size, config.warmup_steps, config.data.modules) == (1024, 0, ())
    assert (config.model.num_heads, config.model.dropout_rate, config.steps) == (8, 0, 700_000)
    assert (config.role_questions, config.role_clusters) == (128, 20)  # figure 2
    assert config.data.split == "train"
    assert (config.model.dtype, config.model.remat, config.role_head) == ("bfloat16", False, 0)
    assert config.data.shapes() == mathematics.BUCKETS


@pytest.mark.parametrize(("clip", "warmup_steps"), [(0.5, 3), (0.0, 0)])
def test_the_optimizer_is_adam_on_clipped_gradients_with_a_warm_up(clip, warmup_steps):
    """Against Kingma and Ba's algorithm 1 over four steps, with gradients above and below the limit."""
    config = small(lr=0.1, b1=0.8, b2=0.95, clip=clip, warmup_steps=warmup_steps)
    optimizer = config.make_optimizer()
    params = {"a": jnp.zeros(2), "b": jnp.zeros(1)}
    state, first, second = optimizer.init(params), np.zeros(3), np.zeros(3)
    update = jax.jit(optimizer.update)
    for step, gradient in enumerate(([3.0, -4.0, 0.5], [0.1, 0.2, -0.3], [2.0, 0.0, 1.0], [0.3, 0.1, 0.2])):
        exact = np.asarray(gradient)
        if clip:
            exact = exact * min(1, clip / np.linalg.norm(exact))
        first, second = 0.8 * first + 0.2 * exact, 0.95 * second + 0.05 * exact**2
        rate = 0.1 * min(1, step / warmup_steps) if warmup_steps else 0.1
        corrected = np.sqrt(second / (1 - 0.95 ** (step + 1))) + 1e-8
        want = -rate * first / (1 - 0.8 ** (step + 1)) / corrected
        grads = {"a": jnp.asarray(gradient[:2]), "b": jnp.asarray(gradient[2:])}
        found, state = update(grads, state, params)
        np.testing.assert_allclose(np.concatenate([found["a"], found["b"]]), want, rtol=1e-4, atol=1e-7)


def test_a_folder_is_evaluated_on_all_that_it_has(tmp_path):
    """Chosen modules are tested alone, unless modules of extrapolation are chosen as well."""
    for split, module in (("interpolate", "numbers__gcd"), ("extrapolate", "numbers__place_value_big")):
        (tmp_path / split).mkdir()
        (tmp_path / split / f"{module}.txt").write_text("1?\n1\n")

    def tested(**fields):
        config = DataConfig(**fields)
        return config.test_modules(config.open())

    folder, big = {"directory": str(tmp_path)}, ("numbers__place_value_big",)
    assert tested(**folder) == {"interpolate": ("numbers__gcd",), "extrapolate": big}
    chosen = {"modules": ("numbers__lcm",)}
    assert tested(**folder, **chosen) == {"interpolate": ("numbers__lcm",)}
    both = {"interpolate": ("numbers__lcm",), "extrapolate": big}
    assert tested(**folder, **chosen, extrapolation=big) == both
    assert tested(**chosen, extrapolation=big, train=3, test=1) == both
    assert tested(**chosen, train=3, test=1) == {"interpolate": ("numbers__lcm",)}


def test_the_preset_quick_is_that_of_the_released_run():
    path = ROOT / "results" / "mathematics" / "quick" / "config.json"
    recorded = dataclasses.asdict(runtime.workdir.read_config(Config, path))  # with the fields added since
    config = dataclasses.asdict(get_config("quick"))
    both = json.loads(path.read_text()).keys() & config.keys()
    assert {"data", "model", "lr", "b2", "clip", "warmup_steps", "batch_size", "steps", "seed"} <= both
    assert {name: config[name] for name in both} == {name: recorded[name] for name in both}


@pytest.mark.parametrize("preset", ["quick", "paper", "modules"])
def test_presets_are_valid(preset):
    dataclasses.replace(get_config(preset), b1=0.0, b2=0.0).validate()


@pytest.mark.parametrize(("attention", "chosen"), [("", None), ("xla", "xla"), ("cudnn", "cudnn")])
def test_the_model_has_the_attention_of_its_config(attention, chosen):
    assert dataclasses.replace(MODEL, attention=attention).make().attention_implementation == chosen


def test_the_card_names_what_was_asked():
    """Modules of the dataset, all of it, or questions of another kind."""
    card = EXPERIMENT.card
    assert card is not None
    own = dataclasses.replace(small().data, questions="expressions", modules=())
    assert card.title(small()) == "a TP-Transformer on numbers__place_value, numbers__is_factor"
    assert card.title(get_config("paper")) == "a TP-Transformer on the whole dataset"
    assert card.title(small(data=own)) == "a TP-Transformer on expressions"
    describe: Any = card.data
    assert "`experiments.mathematics.expressions` draws the questions" in describe(small(data=own))
    assert "`mathematics-dataset` 1.0.1" in describe(small())


def test_a_baseline_can_have_as_many_parameters():
    model = get_config("paper").model
    baseline = small(model=model, baseline=ModelConfig(name="transformer", filter_features=0)).for_baseline()
    assert baseline.model.name == "transformer"
    assert abs(baseline.model.parameters() / model.parameters() - 1) < 2e-4
    assert baseline.model.filter_features > 2048
    assert not baseline.has_baseline
    least, next_one = (dataclasses.replace(MODEL, filter_features=n) for n in (1, 2))
    assert MODEL.matched(least.parameters()) == least
    with pytest.raises(ValueError, match=r"baseline.features: got .*, which exceeds the model's"):
        MODEL.matched(2 * least.parameters() - next_one.parameters())


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
        (with_data(validation=-1), "data.validation: got -1, expected at least 0"),
        (with_data(validation=150), "data.validation: got 150, expected less than data.train = 150"),
        (with_data(train=100), r"train: got 100, expected a nonnegative multiple of 3"),
        (with_data(extrapolation=("numbers__gcd",)), r"modules of extrapolate: got 'numbers__gcd', expected"),
        (with_model(name="lstm"), r"model.name: got 'lstm', expected one of 'tp_transformer', 'transformer'"),
        (with_model(dtype="float16"), r"model.dtype: got 'float16', expected one of 'float32', 'bfloat16'"),
        (with_model(features=15), r"features: got 15, expected an even multiple"),
        (with_model(initialization="he"), r"model.initialization: got 'he', expected one of"),
        (with_model(filter_features=0), r"model.filter_features: got 0, expected at least 1"),
        (small(b2=1.0), r"b2: got 1.0, expected a value in \[0, 1\)"),
        (small(b1=-0.1), r"b1: got -0.1, expected a value in \[0, 1\)"),
        (small(lr=-1e-3), "lr: got -0.001, expected at least 0"),
        (small(clip=-0.1), "clip: got -0.1, expected at least 0"),
        (small(warmup_steps=-1), "warmup_steps: got -1, expected at least 0"),
        (small(eval_questions=-1), "eval_questions: got -1, expected at least 0"),
        (small(final_questions=-1), "final_questions: got -1, expected at least 0"),
        (small(eval_batch_size=0), "eval_batch_size: got 0, expected at least 1"),
        (small(role_questions=0), "role_questions: got 0, expected at least 1"),
        (small(role_clusters=0), "role_clusters: got 0, expected at least 1"),
        (small(steps=-1), "steps: got -1"),
        (with_model(attention="flash"), "model.attention: got 'flash', expected one of"),
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
