"""The config of models that write: presets, flags, and what is refused before anything is read."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from experiments.folnet_language import EXPERIMENT
from experiments.folnet_language.config import get_config
from experiments.runtime import launching
from folnet import FOLNetForCausalLM, FOLNetForConditionalGeneration
from tests.experiments.folnet_language.small import small, with_data

TEXT, PAIRS = Path("a.txt"), Path("a.jsonl")


@pytest.mark.parametrize(
    ("preset", "kind"), [("quick", FOLNetForCausalLM), ("pairs", FOLNetForConditionalGeneration)]
)
def test_presets(preset, kind):
    config = get_config(preset)
    config.validate()
    assert type(config.make_model()) is kind


def test_flags_that_stand_for_fields():
    given = ["x", "--config=pairs", "--data=a.csv", "--validation=b.csv"]
    assert launching._without_shorthands(EXPERIMENT, given) == [
        "x", "--config=pairs", "--config.data.source=a.csv", "--config.data.validation=b.csv",
    ]  # fmt: skip
    assert launching._without_shorthands(EXPERIMENT, ["x", "--data=a"])[1] == "--config=quick"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            with_data(TEXT, source="a.csv"),
            r"data\.source: got 'a.csv', expected text; a file of inputs and targets needs --config=pairs",
        ),
        (with_data(PAIRS, source="a.txt"), r"data\.source: got 'a.txt', expected a file of pairs: \.jsonl"),
        (with_data(PAIRS, directory="d"), r"data\.directory: got 'd', expected none with data\.pairs"),
        (with_data(TEXT, validation="b.csv"), r"data\.validation: got 'b.csv', expected none without"),
        (with_data(TEXT, target="y"), r"data\.target: got 'y', expected none without data\.pairs"),
        (with_data(PAIRS, target_length=1), r"data\.target_length: got 1, expected at least 2"),
        (with_data(TEXT, directory="d", vocabulary="v"), r"data\.vocabulary: got 'v', expected none with"),
        (small(TEXT, beams=0), "beams: got 0, expected at least 1"),
        (small(TEXT, top_p=0.0), r"top_p: got 0\.0, expected 0 < top_p <= 1"),
        (small(TEXT, top_p=1.5), r"top_p: got 1\.5, expected 0 < top_p <= 1"),
        (small(TEXT, log_every=0), "log_every: got 0, expected at least 1"),
        (small(TEXT, warmup=1.5), r"warmup: got 1\.5, expected a fraction from 0 to 1"),
        (small(TEXT, b1=1.0), r"b1: got 1\.0, expected 0 <= b1 < 1"),
        (small(TEXT, model=small(TEXT).model.as_transformer()), "model.name: got .*, expected 'folnet'"),
    ],
)
def test_what_is_refused(config, message):
    with pytest.raises(ValueError, match=message):
        config.validate()


def test_only_models_that_write_are_made():
    small(TEXT, top_p=1.0).validate()
    transformer = small(TEXT, model=small(TEXT).model.as_transformer())
    with pytest.raises(ValueError, match=r"model\.name: got .*, expected 'folnet'"):
        transformer.make_model()


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        (TEXT, {}),
        (TEXT, {"new_tokens": 13}),
        (PAIRS, {"new_tokens": 17}),
        (PAIRS, {"data": with_data(PAIRS, target_length=17).data}),
    ],
)
def test_absolute_positions_limit_what_is_read_and_written(source, fields):
    config: Any = small(source)
    fits = dataclasses.replace(config.model, absolute_position=True, max_position_embeddings=16)
    dataclasses.replace(config, model=fits).validate()
    short = fits if fields else dataclasses.replace(fits, max_position_embeddings=15)
    with pytest.raises(ValueError, match=r"model\.max_position_embeddings: got 1[56], expected at least 1."):
        dataclasses.replace(config, model=short, **fields).validate()
