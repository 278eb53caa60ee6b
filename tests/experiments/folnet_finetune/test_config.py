"""Presets match Table 9, numbers of steps follow from the examples, and invalid fields are reported."""

import dataclasses
from pathlib import Path

import pytest

from experiments import runtime
from experiments.folnet_finetune.config import Config, get_config
from experiments.folnet_finetune.grid import GridConfig, Setting
from folnet import tasks
from tests.experiments.folnet_finetune.small import small


@pytest.mark.parametrize("task", tasks.TASKS)
def test_every_task_has_a_preset_of_table_9(task):
    config = get_config(task)
    config.validate()
    assert config.task == task
    assert (config.b1, config.b2, config.eps, config.weight_decay, config.clip) == (0.9, 0.999, 1e-6, 0.01, 0)
    assert (config.model.hidden_dropout_prob, config.model.attention_probs_dropout_prob) == (0.1, 0.1)
    assert config.settings()[0] in dataclasses.replace(config, sweep="16gb").settings()
    assert config.tokens == {"squad2": 384, "folio": 512, "clutrr23": 256, "clutrr234": 256}.get(task, 128)


@pytest.mark.parametrize(
    ("task", "sweep", "lr", "batch_size", "epochs", "warmup"),
    [
        ("rte", "16gb", (6e-5, 8e-5, 1e-4, 2e-4), (16, 32), (5, 10, 20), (0.06, 0.25)),
        ("mnli", "160gb", (1e-5, 2e-5, 3e-5, 4e-5), (32,), (2, 3, 5), (0.06,)),
        ("squad2", "16gb", (8e-5, 9e-5, 1e-4), (16, 32), (2, 3), (0.06,)),
        ("squad2", "160gb", (1e-5, 2e-5, 3e-5, 4e-5), (16, 32), (2, 3), (0.06,)),
        ("folio", "16gb", (6e-5, 7e-5, 8e-5), (16, 32), (60, 80), (0.06, 0.25)),
        ("folio", "160gb", (1e-5, 2e-5, 3e-5), (16, 32), (60, 80), (0.06, 0.25)),
        ("qqp", "16gb", (6e-5, 8e-5, 1e-4, 2e-4), (32,), (2, 3, 5), (0.06,)),
        ("cola", "160gb", (1e-5, 2e-5, 3e-5, 4e-5), (16, 32), (5, 10, 20), (0.06, 0.25)),
        ("clutrr23", "160gb", (5e-5,), (16,), (100,), (0.06,)),
        ("clutrr234", "16gb", (5e-5,), (16,), (100,), (0.06,)),
    ],
)
def test_a_sweep_is_table_9(task, sweep, lr, batch_size, epochs, warmup):
    config = dataclasses.replace(get_config(task), sweep=sweep)
    config.validate()
    settings = config.settings()
    assert len(set(settings)) == len(settings) == len(lr) * len(batch_size) * len(epochs) * len(warmup)
    for values, name in ((lr, "lr"), (batch_size, "batch_size"), (epochs, "epochs"), (warmup, "warmup")):
        assert {getattr(setting, name) for setting in settings} == set(values)
    one = config.for_run(settings[-1], 4)
    assert (one.seed, one.seeds, one.sweep, one.lr) == (4, 1, "none", lr[-1])
    fewer = dataclasses.replace(config, grid=GridConfig(lr=(0.5,), epochs=(7,)))
    assert {(setting.lr, setting.epochs) for setting in fewer.settings()} == {(0.5, 7)}


@pytest.mark.parametrize(
    ("task", "lr", "batch_size", "epochs"),
    [("rte", 8e-5, 32, 10), ("mnli", 8e-5, 32, 3), ("squad2", 9e-5, 32, 3), ("folio", 7e-5, 32, 80)],
)
def test_a_preset_is_a_middle_setting(task, lr, batch_size, epochs):
    """The middle rates and epochs (of two the lower rate), the larger batch, the shorter warmup."""
    config = get_config(task)
    assert config.settings() == [Setting(lr, batch_size, epochs, 0.06)]
    assert (config.model.dtype, config.released_text, config.mask_padding) == ("bfloat16", True, False)
    plain = Config()
    assert plain.settings()[0] in dataclasses.replace(plain, sweep="16gb").settings()
    assert (plain.task, plain.seeds, plain.accumulate, plain.clip, plain.lengths) == ("rte", 1, 0, 0, ())
    if task == "squad2":
        assert (config.tokens, config.stride, config.query_length) == (384, 128, 64)


def test_a_config_must_fit_the_devices():
    """Every batch size of a sweep along `data`, and every length along `model`."""

    class Rows(runtime.Layout):
        def check(self, batch_size, devices):
            if batch_size % 32:
                raise ValueError(f"batch_size: got {batch_size}")

    get_config("mnli").check_layout(Rows())
    sweep = dataclasses.replace(get_config("rte"), sweep="16gb", batch_size=32)
    with pytest.raises(ValueError, match="batch_size: got 16"):
        sweep.check_layout(Rows())
    with pytest.raises(ValueError, match="accumulate: got 3, expected a divisor of 32"):
        dataclasses.replace(get_config("mnli"), accumulate=3).check_layout(runtime.Layout())
    for lengths, wrong in (((12, 16), 12), ((8, 16), 18)):
        config = dataclasses.replace(
            get_config("mnli"), mask_padding=True, lengths=lengths, length=18 if wrong == 18 else 32
        )
        with pytest.raises(ValueError, match=rf"length: got {wrong}, expected a multiple of 8"):
            config.check_layout(Rows(model=8))


def test_steps_follow_from_examples():
    """Evaluations are at the ends of epochs, and the interval of records divides theirs."""
    config = get_config("rte")
    config.batch_size, config.epochs = 32, 10
    found = config.resolved(2490)
    assert (found.steps, found.eval_every, found.checkpoint_every, found.log_every) == (780, 78, 78, 39)
    found.validate()
    for most, divisor in ((38, 26), (39, 39), (99, 78), (10**15, 78)):
        assert dataclasses.replace(config, log_every=most).resolved(2490).log_every == divisor
    assert config.resolved(32 * 97 - 1).log_every == 1
    config.eval_every, config.checkpoint_every, config.steps = 60, 90, 70
    found = config.resolved(2490)
    assert (found.steps, found.eval_every, found.checkpoint_every, found.log_every) == (70, 60, 90, 30)
    found.validate()


@pytest.mark.parametrize(
    "fields",
    [
        {"b1": 0.0, "b2": 0.0, "warmup": 0.0, "lr": 0.0},
        {"task": "squad2", "length": 195},
        {"lengths": (9, 16), "mask_padding": True, "length": 32},
    ],
)
def test_bounds_themselves_are_valid(fields):
    small(Path("data"), Path("models"), **fields).validate()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"task": "wnli"}, "task: got 'wnli', expected one of 'mnli'"),
        ({"epochs": 0}, "epochs: got 0, expected at least 1"),
        *(
            ({name: least - 1}, f"{name}: got {least - 1}, expected at least {least}")
            for name, least in (
                ("steps", 0),
                ("eval_every", 0),
                ("checkpoint_every", 0),
                ("log_every", 1),
                ("accumulate", 0),
                ("eval_batch_size", 1),
                ("batch_size", 1),
            )
        ),
        *(
            ({name: -0.5}, f"{name}: got -0.5, expected at least 0")
            for name in ("eps", "weight_decay", "clip")
        ),
        ({"lr": -0.5}, "lr: got -0.5, expected at least 0"),
        ({"b1": 1.0}, "b1: got 1.0, expected 0 <= b1 < 1"),
        ({"b2": -0.1}, "b2: got -0.1, expected 0 <= b2 < 1"),
        ({"query_length": 3}, "query_length: got 3, expected 64 unless task='squad2'"),
        ({"task": "squad2", "length": 400, "stride": 0}, "stride: got 0, expected at least 1"),
        ({"sweep": "16gb", "grid.lr": (-1.0,)}, "lr: got -1.0, expected at least 0"),
        ({"warmup": 1.0}, "warmup: got 1.0, expected 0 <= warmup < 1"),
        ({"seeds": 0}, "seeds: got 0, expected at least 1"),
        ({"sweep": "all"}, "sweep: got 'all', expected one of 'none', '16gb', '160gb'"),
        ({"grid.lr": (1e-4,)}, "expected the default without a sweep"),
        ({"sweep": "16gb", "steps": 5}, "steps: got 5, expected 0 in a sweep"),
        ({"sweep": "16gb", "grid.batch_size": (0,)}, "batch_size: got 0, expected at least 1"),
        ({"accumulate": 3}, "accumulate: got 3, expected a divisor of batch_size=2"),
        ({"keep": "none"}, "keep: got 'none', expected one of 'chosen', 'all'"),
        ({"lengths": (8,)}, r"expected \(\) without mask_padding"),
        ({"lengths": (12, 8), "mask_padding": True}, "expected increasing lengths below 16"),
        ({"lengths": (8, 16), "mask_padding": True}, "expected increasing lengths below 16"),
        ({"length": 4}, "length: got 4, expected at least 8"),
        ({"task": "squad2", "length": 194}, "length: got 194, expected at least query_length"),
        ({"stride": 3}, "stride: got 3, expected 128 unless task='squad2'"),
        ({"model.hidden_size": 8}, "model.hidden_size: got 8, expected the default 768"),
        ({"checkpoint": "", "model.operators": "a.j"}, "model.operators.* 'a.j'"),
        (
            {"checkpoint": "", "model.absolute_position": True, "length": 600},
            "length: got 600, expected at most",
        ),
        ({"keep_checkpoints": 1}, "keep_checkpoints: got 1, expected at least 2"),
        ({"lr": "x"}, "lr: got 'x', expected type float"),
    ],
)
def test_invalid_fields_are_reported(fields, message):
    config = small(Path("data"), Path("models"))
    for name, value in fields.items():
        *holder, field = name.split(".")
        setattr(getattr(config, holder[0]) if holder else config, field, value)
    with pytest.raises(ValueError, match=message):
        config.validate()
