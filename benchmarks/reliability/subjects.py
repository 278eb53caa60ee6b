"""The runs that the soak kills: each experiment, as small as it gets with everything in it.

All end by steps, none by the clock: how many steps fit into a second differs from run to run, killed or not.
For the same reason there are no baselines that get as many seconds as the model.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np

from folnet import FOLNetConfig, FOLNetForPreTraining, parameters
from folnet.tokenization import WordPieceTokenizer

_FOLNET: dict[str, Any] = {
    "vocab_size": 104,
    "hidden_size": 16,
    "relation_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "head_size": 8,
    "intermediate_size": 24,
    "relation_intermediate_size": 16,
    "max_distance": 8,
    "max_position_embeddings": 16,
}
_KINSHIP: dict[str, Any] = {
    "hidden_size": 8,
    "relation_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "head_size": 4,
    "intermediate_size": 12,
    "relation_intermediate_size": 8,
}


@dataclasses.dataclass(frozen=True)
class Subject:
    """A run, as a user starts it."""

    name: str  # of the experiment
    command: tuple[str, ...]  # what starts it, without its workdir

    def started(self, workdir: Path) -> list[str]:
        """The command line of a run there."""
        return [*self.command, f"--workdir={workdir}"]


def experiment(name: str, preset: str, fields: dict[str, Any]) -> Subject:
    """An experiment's program with some fields of a preset changed."""
    flags = (f"--config.{field}={value}" for field, value in fields.items())
    config = f"--config=experiments/configs/{name}.py:{preset}"
    return Subject(name, (sys.executable, "-m", f"experiments.{name}", config, *flags))


def all_subjects(data: Path) -> dict[str, Subject]:
    """The six experiments.

    Args:
        data: a folder for the text and the checkpoint that two of them begin with; written here if it is new.
    """
    if not (data / "checkpoint" / "vocab.txt").exists():
        _write_data(data)
    every: dict[str, Any] = {"log_every": 2, "checkpoint_every": 4, "eval_every": 8}
    found = [
        experiment(
            "boxworld",
            "quick",
            every
            | {"steps": 40, "batch_size": 8, "updates": 2, "unroll": 5, "groups": 2, "seeds": 2}
            | {"agent.features": 8, "agent.two_simplicial_features": 4, "agent.head_features": (8,)}
            | {"board.horizon": 12, "eval_episodes": 40, "final_episodes": 40},
        ),
        experiment(
            "mathematics",
            "quick",
            every
            | {"steps": 100, "batch_size": 8, "warmup_steps": 2, "eval_batch_size": 8, "eval_questions": 8}
            | {"data.modules": ("numbers__place_value", "numbers__is_factor"), "data.train": 300}
            | {"data.test": 20, "data.buckets": ("54x8",), "role_questions": 8, "role_clusters": 3}
            | {
                "model.features": 16,
                "model.filter_features": 24,
                "model.num_heads": 2,
                "model.num_layers": 1,
            },
        ),
        experiment(
            "folnet_pretrain",
            "quick",
            every
            | {"steps": 60, "batch_size": 8, "eval_batch_size": 16, "blanks": 4, "baseline": "none"}
            | {"data.source": data / "text.txt", "data.new_vocabulary": 100, "data.length": 16}
            | {f"model.{name}": value for name, value in _FOLNET.items()},
        ),
        experiment(
            "folnet_finetune",
            "rte",
            every
            | {"data_dir": data, "checkpoint": data / "checkpoint", "length": 16, "batch_size": 2}
            | {"epochs": 20, "eval_batch_size": 4, "lr": 0.003},
        ),
        experiment(
            "kinship",
            "quick",
            every
            | {"steps": 160, "max_seconds": 0.0, "model": "j.a", "match": "jm.ap", "baselines": ()}
            | {"metric_lengths": (3, 4), "batch_size": 4, "eval_batch_size": 8, "warmup_steps": 2}
            | {"data.train_lengths": (2, 3), "data.test_lengths": (2, 3, 4), "data.test_problems": 7}
            | {f"sizes.{name}": value for name, value in _KINSHIP.items()},
        ),
        experiment(
            "llrnn",
            "quick",
            every
            | {"steps": 400, "batch_size": 8, "baseline.name": "none", "eval_examples": 6}
            | {"final_examples": 6, "cell.features": 8},
        ),
    ]
    return {subject.name: subject for subject in found}


def _write_data(folder: Path) -> None:
    """Sentences of one shape, RTE's tables of some rows, and a FOLNet that was not trained."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    nouns, verbs = ("cat", "dog", "bird", "fish"), ("sees", "hears", "likes")

    def sentence() -> str:
        return f"The {rng.choice(nouns)} {rng.choice(verbs)} the {rng.choice(nouns)}."

    documents = [" ".join(sentence() for _ in range(rng.integers(3, 12))) for _ in range(60)]
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    for name, count in {"train": 12, "dev": 6, "test": 2}.items():
        labels = ("entailment", "not_entailment")
        rows = [
            [str(row), sentence(), sentence(), *([] if name == "test" else [labels[row % 2]])]
            for row in range(count)
        ]
        header = ["index", "sentence1", "sentence2", *([] if name == "test" else ["label"])]
        table = folder / "RTE" / f"{name}.tsv"
        table.parent.mkdir(exist_ok=True)
        table.write_text("".join("\t".join(row) + "\n" for row in [header, *rows]), encoding="utf-8")
    tokenizer = WordPieceTokenizer.train(documents, 100)
    model = FOLNetForPreTraining(FOLNetConfig(**(_FOLNET | {"vocab_size": tokenizer.padded_vocab_size})))
    drawn = {
        name: rng.normal(0, 0.02, shape).astype(np.float32)
        for name, shape in parameters.shapes(model).items()
    }
    model.save_pretrained(folder / "checkpoint", parameters.nest(drawn))
    tokenizer.save(folder / "checkpoint" / "vocab.txt")
