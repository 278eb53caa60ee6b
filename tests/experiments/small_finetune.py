"""Fine-tuning that takes seconds: files as they are published, a FOLNet of some thousand parameters."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from experiments.configs.folnet_finetune import Config
from folnet import FOLNetForPreTraining
from folnet.tasks.clutrr import RELATIONS
from tests.experiments.small_folnet import MODEL
from tests.folnet import small_tasks

SETTINGS = dataclasses.replace(MODEL, vocab_size=112)


def checkpoint(folder: Path, **fields: Any) -> Path:
    """A pretrained model, as drawn, with its vocabulary."""
    tokenizer = small_tasks.tokenizer()
    rows = tokenizer.padded_vocab_size
    settings = dataclasses.replace(MODEL, vocab_size=rows, **fields).settings("MLM.SOP")
    model = FOLNetForPreTraining(settings)
    params = jax.jit(lambda key: model.init(key, jnp.zeros((1, 4), jnp.int32))["params"])(jax.random.key(7))
    model.save_pretrained(folder, params)
    tokenizer.save(folder / "vocab.txt")
    return folder


def small(data_dir: Path, checkpoint: Path, **fields: Any) -> Config:
    """RTE of two examples, three steps of one batch each; nothing is dropped."""
    chosen: dict[str, Any] = {
        "task": "rte",
        "data_dir": str(data_dir),
        "checkpoint": str(checkpoint),
        "batch_size": 2,
        "epochs": 3,
        "length": 16,
        "eval_batch_size": 2,
        "lr": 0.01,
    }
    config = Config(**(chosen | fields))
    config.model.hidden_dropout_prob = config.model.attention_probs_dropout_prob = 0.0
    return config
