"""Runs of seconds: a language model of sentences, and an encoder-decoder that turns two words around."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from experiments.folnet_language.config import Config, DataConfig
from tests.experiments.folnet_pretrain.small import MODEL

NOUNS, VERBS = ("cat", "dog", "bird", "fish"), ("sees", "hears", "likes")
ADJECTIVES = ("big", "old", "red", "new")


def write_pairs(folder: Path) -> Path:
    """Writes sentences of an adjective, a noun and a verb; targets are the last two, turned around."""
    rows = [
        {"input": f"the {adjective} {noun} {verb} .", "target": f"{verb} {noun}"}
        for adjective in ADJECTIVES
        for noun in NOUNS
        for verb in VERBS
    ]
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def small(source: Path, /, **fields: Any) -> Config:
    """Returns a config with `MODEL` and four steps; of pairs if the source is a table."""
    pairs = source.suffix != ".txt"
    chosen: dict[str, Any] = {
        "data": DataConfig(
            source=str(source), new_vocabulary=100, length=16, target_length=8, pairs=pairs,
            packing="document" if pairs else "corpus",
        ),
        "model": dataclasses.replace(MODEL, operators="j." if pairs else "j.a"),
        "schedule": "constant",
    }  # fmt: skip
    chosen |= {"batch_size": 8, "steps": 4, "log_every": 2, "checkpoint_every": 2, "eval_every": 2}
    chosen |= {"eval_batch_size": 8, "samples": 2, "prompt_tokens": 4, "new_tokens": 6, "beams": 2}
    return Config(**(chosen | fields))


def with_data(source: Path, /, **fields: Any) -> Config:
    """Returns `small` with these fields of `data` replaced."""
    return small(source, data=dataclasses.replace(small(source).data, **fields))
