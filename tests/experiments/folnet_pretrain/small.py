"""A pretraining run of seconds: a few hundred sentences, a FOLNet of a few thousand parameters."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from experiments.folnet_pretrain.config import Config
from experiments.folnet_pretrain.parts import DataConfig, ModelConfig

MODEL = ModelConfig(
    vocab_size=104,
    hidden_size=16,
    relation_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    head_size=8,
    intermediate_size=24,
    relation_intermediate_size=16,
    operators="j.",
    max_distance=8,
    max_position_embeddings=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def write_text(folder: Path) -> Path:
    """Writes a file of sixty documents with simple sentences of one pattern."""
    rng = np.random.default_rng(0)
    nouns, verbs = ("cat", "dog", "bird", "fish"), ("sees", "hears", "likes")
    documents = []
    for _ in range(60):
        sentences = [
            f"The {rng.choice(nouns)} {rng.choice(verbs)} the {rng.choice(nouns)}."
            for _ in range(rng.integers(3, 12))
        ]
        documents.append(" ".join(sentences))
    path = folder / "text.txt"
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


def small(source: Path, **fields: Any) -> Config:
    """Returns a config with this text, `MODEL` and four steps."""
    chosen: dict[str, Any] = {
        "data": DataConfig(source=str(source), new_vocabulary=100, length=16),
        "model": dataclasses.replace(MODEL),
        "schedule": "constant",
    }
    chosen |= {"batch_size": 8, "steps": 4, "log_every": 2, "checkpoint_every": 2, "eval_every": 2}
    chosen |= {"eval_batch_size": 16, "blanks": 4}
    return Config(**(chosen | fields))


def with_data(source: Path, **fields: Any) -> Config:
    """Returns `small` with these fields of `data` replaced."""
    return small(source, data=dataclasses.replace(small(source).data, **fields))


def with_model(source: Path, **fields: Any) -> Config:
    """Returns `small` with these fields of `model` replaced."""
    return small(source, model=dataclasses.replace(MODEL, **fields))
