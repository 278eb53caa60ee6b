"""Configs: accepted values, and messages for invalid ones."""

import dataclasses
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import pytest
import regression  # pyrefly: ignore[missing-import]

from experiments import runtime
from experiments.runtime import launching
from experiments.runtime.config import check_types, from_dict
from experiments.runtime.launching import config_file


@dataclasses.dataclass
class Inner:
    width: int = 3
    names: tuple[str, ...] = ("a",)


@dataclasses.dataclass
class Config(runtime.RunConfig):
    lr: float = 0.1
    limit: float | None = None
    pair: tuple[int, float] = (1, 0.5)
    kind: Literal["short", "long"] = "short"
    inner: Inner = dataclasses.field(default_factory=Inner)


WRONG: dict[str, Any] = {"width": 2.5, "names": ("a", 1), "text": "3"}


def test_the_defaults_are_valid():
    Config().validate()
    Config(lr=1, limit=3, steps=10**6, inner=Inner(names=())).validate()
    Config(init_from="run", init_optimizer=True).validate()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lr": "x"}, "lr: got 'x', expected type float"),
        ({"lr": True}, "lr: got True, expected type float"),
        ({"steps": 10.0}, "steps: got 10.0, expected type int"),
        ({"steps": True}, "steps: got True, expected type int"),
        ({"tensorboard": 1}, "tensorboard: got 1, expected type bool"),
        ({"limit": "none"}, r"limit: got 'none', expected type float \| None"),
        ({"pair": (1,)}, r"pair: got \(1,\), expected type tuple\[int, float\]"),
        ({"pair": ("a", 0.5)}, r"pair: got \('a', 0.5\), expected type tuple\[int, float\]"),
        ({"pair": [1, 2.0]}, "pair: got .*, expected type tuple"),
        ({"kind": "middle"}, "kind: got 'middle', expected one of 'short', 'long'"),
        ({"inner": Inner(width=WRONG["width"])}, "inner.width: got 2.5, expected type int"),
        (
            {"inner": Inner(names=WRONG["names"])},
            r"inner.names: got \('a', 1\), expected type tuple\[str, ...\]",
        ),
        ({"inner": None}, "inner: got None, expected type Inner"),
        ({"seed": -1}, "seed: got -1, expected at least 0"),
        ({"seed": 2**32}, r"seed: got 4294967296, expected less than 2\^32"),
        ({"steps": 0}, "steps: got 0, expected at least 1"),
        ({"batch_size": 0}, "batch_size: got 0, expected at least 1"),
        ({"log_every": 0}, "log_every: got 0, expected at least 1"),
        ({"keep_checkpoints": 1}, "keep_checkpoints: got 1, expected at least 2"),
        ({"max_seconds": float("nan")}, "max_seconds: got nan, expected at least 0"),
        ({"checkpoint_every": 150}, "checkpoint_every: got 150, expected a multiple of log_every=100"),
        ({"eval_every": 250}, "eval_every: got 250, expected a multiple of log_every=100"),
        ({"init_optimizer": True}, "init_optimizer: got True, expected False without init_from"),
    ],
)
def test_what_is_wrong_is_named(fields, message):
    with pytest.raises(ValueError, match=message):
        Config(**fields).validate()


def test_choices_are_named():
    runtime.one_of("cell", "elman", ["elman", "lstm"])
    with pytest.raises(ValueError, match="cell: got 'gru', expected one of 'elman', 'lstm'"):
        runtime.one_of("cell", "gru", ["elman", "lstm"])


def test_types_are_checked_in_any_dataclass():
    check_types(Inner())
    check_types(dataclasses.make_dataclass("Loose", [("anything", Any)])(anything="goes"))
    with pytest.raises(ValueError, match=r"model\.width: got '3'"):
        check_types(Inner(width=WRONG["text"]), "model.")


def test_the_flag_tensorboard_adds_a_log_once():
    assert Config(tensorboard=True, log=("wandb",)).logs == ("tensorboard", "wandb")
    assert Config(tensorboard=True, log=("wandb", "tensorboard")).logs == ("wandb", "tensorboard")


def test_a_config_is_read_from_json():
    """The first unknown field by name is reported; values of a wrong kind are left to the check of types."""
    read = from_dict(Config, {"lr": 0.5, "pair": [2, 1.5], "inner": {"names": ["b", "c"]}})
    assert read == Config(lr=0.5, pair=(2, 1.5), inner=Inner(names=("b", "c")))
    with pytest.raises(ValueError, match=r"config: got field 'inner\.depth', expected a field of Inner"):
        from_dict(Config, {"inner": dict.fromkeys(("width", "size", "rows", "level", "depth"), 1)})
    for field, value in (("lr", {"width": 1}), ("inner", 3)):
        with pytest.raises(ValueError, match=f"{field}: got "):
            from_dict(Config, {field: value}).validate()


@dataclasses.dataclass
class Shape(runtime.Variant):
    pass


@dataclasses.dataclass
class Round(Shape):
    name: str = "round"
    size: float = 1.0


@dataclasses.dataclass
class Square(Shape):
    name: str = "square"
    size: float = 2.0
    tilt: float | None = None
    color: str = "red"


@dataclasses.dataclass
class Drawn(runtime.RunConfig):
    shape: Shape = dataclasses.field(default_factory=Shape)


def test_a_variant_is_chosen_by_its_name():
    assert Shape.variants == {"none": Shape, "round": Round, "square": Square}
    assert Shape.of("square", 3.0, color="blue") == Square(size=3.0, color="blue")
    assert Square(size=3.0, color="blue").as_variant("round") == Round(size=3.0)
    assert Round(size=4.0).as_variant("square") == Square(size=4.0)
    assert Shape().as_variant("round") == Round()
    for wrong in (Shape.of, Round().as_variant):
        with pytest.raises(ValueError, match="name: got 'oval', expected one of 'none', 'round', 'square'"):
            wrong("oval")
    Drawn(shape=Square(tilt=0.5)).validate()
    with pytest.raises(ValueError, match=r"shape\.tilt: got 'x', expected type float"):
        Drawn(shape=Shape.of("square", tilt="x")).validate()
    with pytest.raises(ValueError, match=r"shape\.name: got 'square', expected one of 'round'"):
        Drawn(shape=Round("square")).validate()


def test_a_variant_is_read_from_json():
    """None stands for a default where it is no value; fields of other variants are left out."""
    flat = {"name": "square", "size": None, "tilt": None, "color": "blue"}
    assert from_dict(Drawn, {"shape": flat}).shape == Square(color="blue")
    assert from_dict(Drawn, {"shape": flat | {"name": "round"}}).shape == Round()
    assert from_dict(Drawn, {"shape": {"name": "none"}}) == from_dict(Drawn, {}) == Drawn()
    with pytest.raises(ValueError, match=r"config: got field 'shape\.depth', expected a field of Round"):
        from_dict(Drawn, {"shape": {"name": "round", "depth": 1}})
    for name in ({"name": "oval"}, {}):
        with pytest.raises(
            ValueError, match=r"shape\.name: got .*, expected one of 'none', 'round', 'square'"
        ):
            from_dict(Drawn, {"shape": name})


def test_a_layout_for_other_devices_is_refused():
    Config().check_layout(runtime.Layout())
    more = jax.device_count() + 1
    with pytest.raises(ValueError, match=f"mesh: got data:{more},model:1 for {more} devices, expected sizes"):
        Config(batch_size=more).check_layout(runtime.Layout(data=more))


def test_parts_of_a_batch_are_those_of_each_device(monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 8)
    message = "accumulate: got 16, expected a divisor of 8, the rows of a batch per device"
    with pytest.raises(ValueError, match=message):
        Config(batch_size=64, accumulate=16).check_layout(runtime.Layout())
    Config(batch_size=64, accumulate=16).check_layout(runtime.Layout(model=2))
    for parts in (0, 8):
        Config(batch_size=64, accumulate=parts).check_layout(runtime.Layout())


def test_the_session_that_is_left_is_that_of_the_first_process(monkeypatch):
    """Their settings must be the same."""
    monkeypatch.setattr("time.monotonic", lambda: 7.0)
    assert Config(session_seconds=9.0).in_session(5.0) == Config(session_seconds=7.0)
    assert Config(session_seconds=9.0).in_session(-5.0) == Config(session_seconds=1e-3)
    assert Config().in_session(5.0) == Config()
    monkeypatch.setattr(runtime.processes, "gathered", lambda own: np.asarray([6.5, own]))
    assert Config(session_seconds=9.0).in_session(5.0) == Config(session_seconds=6.5)


def test_presets_are_built_anew_each_time_and_named_when_there_is_none():
    get_config = runtime.Presets(quick=Config, paper=lambda: Config(lr=0.5))
    assert get_config("paper").lr == 0.5
    assert get_config("quick") is not get_config("quick")
    for name in (None, "quik"):
        with pytest.raises(ValueError, match="'quick', 'paper'"):
            get_config(name)


@pytest.mark.parametrize("value", ["quick", "regression:quick"])
def test_a_preset_is_named_from_any_folder(value, tmp_path, monkeypatch):
    """The file is that of the experiment's config class, independent of the current directory."""
    monkeypatch.chdir(tmp_path)
    file, _, preset = config_file(regression.EXPERIMENT, value).rpartition(":")
    assert (Path(file).is_absolute(), Path(file).name, preset) == (True, "regression_config.py", "quick")


def test_a_file_of_ones_own_is_taken_as_it_is():
    for value in ("mine.py", "mine.py:fast", "/somewhere/mine.py:quick"):
        assert config_file(regression.EXPERIMENT, value) == value


def test_a_run_is_over_after_its_steps_or_its_seconds():
    assert [Config(steps=9).is_over(step, 1e6) for step in (8, 9)] == [False, True]
    assert [Config(steps=9, max_seconds=2.5).is_over(3, seconds) for seconds in (2.4, 2.5)] == [False, True]


def test_a_config_without_a_value_is_left_to_the_parser_of_flags():
    given = ["program", "--config=quick", "--config", "quick", "--config"]
    found = launching._with_files(regression.EXPERIMENT, given)
    assert [value.rpartition(":")[2] for value in found] == [
        "program",
        "quick",
        "--config",
        "quick",
        "--config",
    ]
    assert all(value.endswith("regression_config.py:quick") or value in given for value in found[1:])
