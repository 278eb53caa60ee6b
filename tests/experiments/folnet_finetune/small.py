"""Fine-tuning that takes seconds: files in published formats, a FOLNet of a few thousand parameters."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments.folnet_finetune.config import Config
from folnet import FOLNetForPreTraining, parameters
from folnet.tasks.clutrr import RELATIONS
from tests.experiments.folnet_pretrain.small import MODEL
from tests.folnet import small_tasks

ROWS = small_tasks.tokenizer().padded_vocab_size


def checkpoint(folder: Path, model: type[Any] = FOLNetForPreTraining, **fields: Any) -> Path:
    """Writes a model with random parameters and its vocabulary, without compiling anything."""
    settings = dataclasses.replace(MODEL, vocab_size=ROWS, **fields).settings("MLM.SOP")
    made, rng = model(settings), np.random.default_rng(7)
    table = {
        name: rng.normal(0, 0.02, shape).astype(np.float32) for name, shape in parameters.shapes(made).items()
    }
    made.save_pretrained(folder, parameters.nest(table))
    small_tasks.tokenizer().save(folder / "vocab.txt")
    return folder


def small(data_dir: Path, checkpoint: Path | None, **fields: Any) -> Config:
    """Returns a config for RTE with batches of two for three epochs, without dropout."""
    chosen: dict[str, Any] = {
        "task": "rte",
        "data_dir": str(data_dir),
        "checkpoint": str(checkpoint or ""),
        "batch_size": 2,
        "epochs": 3,
        "length": 16,
        "eval_batch_size": 2,
        "lr": 0.01,
    }
    config = Config(**(chosen | fields))
    config.model = dataclasses.replace(
        config.model, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    return config


def write_rte(root: Path, train: int = 3, dev: int = 3, test: int = 1) -> Path:
    """Writes RTE's tables; a sentence is entailed if and only if it has the word "dog"."""
    rng = np.random.default_rng(0)
    sizes = {"train": train, "dev": dev, "test": test}
    for name, size in sizes.items():
        rows = ["index\tsentence1\tsentence2" + ("" if name == "test" else "\tlabel")]
        for number in range(size):
            entailed = number % 2 == 0
            who = "dog" if entailed else "cat"
            second = f"the {rng.choice(['good', 'red', 'great'])} {who} {rng.choice(['sat', 'ran'])} ."
            label = "entailment" if entailed else "not_entailment"
            rows.append(f"{number}\tit is a book .\t{second}" + ("" if name == "test" else f"\t{label}"))
        small_tasks.write(root / f"RTE/{name}.tsv", "\n".join(rows) + "\n")
    return root


def write_folio(root: Path, size: int = 3) -> Path:
    """Writes the two files of FOLIO."""
    for name in ("train", "validation"):
        records = [
            {"premises": ["A dog is red. ", "All red play."], "conclusion": "It is good.", "label": label}
            for label in ("True", "False", "Unknown", "Uncertain")[:size]
        ]
        text = "".join(json.dumps(record) + "\n" for record in records)
        small_tasks.write(root / f"folio-{name}.jsonl", text)
    return root


_CLUTRR = "id,story,query,text_query,target,text_target,proof_state,f_comb,task_name,story_edges,edge_types"


def _clutrr_row(number: int, relation: str, k: int) -> str:
    query = "\"('Jason', 'Lewis')\""
    return f'{number},id{number},"[Jason] sat. [Lewis] ran.",{query},,{relation},[],[],x,task_1.{k},e,t'


def write_clutrr(root: Path) -> Path:
    """Writes CLUTRR as published by its authors: nine files of test chains, no validation split."""
    folder = root / "data_089907f8"
    for k in range(2, 11):
        rows = [_clutrr_row(number, RELATIONS[k + number], k) for number in range(2)]
        small_tasks.write(folder / f"1.{k}_test.csv", "\n".join(["," + _CLUTRR, *rows]) + "\n")
    rows = [_clutrr_row(number, RELATIONS[number], 2 + number % 2) for number in range(3)]
    small_tasks.write(folder / "1.2,1.3_train.csv", "\n".join(["," + _CLUTRR, *rows]) + "\n")
    return root
