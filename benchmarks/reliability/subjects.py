"""The runs that the soak kills: every experiment's default preset, as small as possible but complete.

All runs end by steps and none by the clock, since the number of steps per second differs from run to run. For
the same reason, no baseline gets as many seconds as the model.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments.registry import EXPERIMENTS
from folnet import FOLNetConfig, FOLNetForPreTraining, parameters
from folnet.tokenization import WordPieceTokenizer

FOLNET: dict[str, Any] = {
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
"""Fields of a small FOLNet's config."""
_HALVED = ("hidden_size", "relation_size", "head_size", "intermediate_size", "relation_intermediate_size")
KINSHIP = {name: FOLNET[name] // 2 for name in _HALVED}
KINSHIP |= {"num_hidden_layers": 1, "num_attention_heads": 2}


@dataclasses.dataclass(frozen=True)
class Subject:
    """A run as a user starts it: the name of the experiment, and the command without --workdir."""

    name: str
    command: tuple[str, ...]

    def started(self, workdir: Path) -> list[str]:
        """Returns the command line of a run in a workdir."""
        return [*self.command, f"--workdir={workdir}"]


def subject(name: str, preset: str, fields: dict[str, Any]) -> Subject:
    """Returns the run of an experiment with some fields of a preset changed."""
    flags = (f"--config.{field}={value}" for field, value in fields.items())
    return Subject(name, (sys.executable, "-m", f"experiments.{name}", f"--config={preset}", *flags))


def all_subjects(data: Path) -> dict[str, Subject]:
    """Returns the runs of all experiments by name; writes to `data` the inputs that some of them need."""
    if not (data / "checkpoint" / "vocab.txt").exists():
        _write_data(data)
    every: dict[str, Any] = {"log_every": 2, "checkpoint_every": 4, "eval_every": 8}
    return {
        name: subject(name, EXPERIMENTS[name].default, every | fields)
        for name, fields in changed(data).items()
    }


def changed(data: Path) -> dict[str, dict[str, Any]]:
    """Returns the fields by which the run of each experiment differs from its default preset."""
    return {
        "boxworld": {"steps": 40, "batch_size": 8, "updates": 2, "unroll": 5, "groups": 2, "seeds": 2}
        | {"agent.features": 8, "agent.two_simplicial_features": 4, "agent.head_features": (8,)}
        | {"board.horizon": 12, "eval_episodes": 40, "final_episodes": 40},
        "mathematics": {"steps": 100, "batch_size": 8, "warmup_steps": 2, "eval_batch_size": 8}
        | {"data.modules": ("numbers__place_value", "numbers__is_factor"), "data.train": 300}
        | {"data.test": 20, "data.buckets": ("54x8",), "role_questions": 8, "role_clusters": 3}
        | {"model.features": 16, "model.filter_features": 24, "model.num_heads": 2, "model.num_layers": 1}
        | {"eval_questions": 8},
        "folnet_pretrain": {"steps": 60, "batch_size": 8, "eval_batch_size": 16, "blanks": 4}
        | {"data.source": data / "text.txt", "data.new_vocabulary": 100, "data.length": 16}
        | {"baseline": "none", **{f"model.{name}": value for name, value in FOLNET.items()}},
        "folnet_language": {"steps": 60, "batch_size": 8, "eval_batch_size": 16, "samples": 2, "beams": 1}
        | {"data.source": data / "text.txt", "data.new_vocabulary": 100, "data.length": 16}
        | {f"model.{name}": value for name, value in FOLNET.items()},
        "folnet_finetune": {"data_dir": data, "checkpoint": data / "checkpoint", "length": 16}
        | {"batch_size": 2, "epochs": 20, "eval_batch_size": 4, "lr": 0.003},
        "kinship": {"steps": 160, "max_seconds": 0.0, "model": "j.a", "match": "jm.ap", "baselines": ()}
        | {"metric_lengths": (3, 4), "batch_size": 4, "eval_batch_size": 8, "warmup_steps": 2}
        | {"data.train_lengths": (2, 3), "data.test_lengths": (2, 3, 4), "data.test_problems": 7}
        | {f"sizes.{name}": value for name, value in KINSHIP.items()},
        "llrnn": {"steps": 400, "batch_size": 8, "baseline.name": "none", "eval_examples": 6}
        | {"final_examples": 6, "cell.features": 8},
        "reasoning": {"steps": 100, "batch_size": 4, "warmup_steps": 2, "length": 16, "features": 8}
        | {"num_layers": 2, "num_heads": 2, "hidden": 8, "every": 2, "window1": 2, "window2": 4},
    }


def _write_data(folder: Path) -> None:
    """Writes sentences of one form, small tables of RTE, and an untrained FOLNet."""
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
    model, params = drawn(FOLNetForPreTraining, vocab_size=tokenizer.padded_vocab_size)
    model.save_pretrained(folder / "checkpoint", params)
    tokenizer.save(folder / "checkpoint" / "vocab.txt")


def drawn(kind: Any, **fields: Any) -> tuple[Any, dict[str, Any]]:
    """Returns a small untrained FOLNet of class `kind`, and its random parameters."""
    model, rng = kind(FOLNetConfig(**(FOLNET | fields))), np.random.default_rng(0)
    shapes = parameters.shapes(model).items()
    flat = {name: rng.normal(0, 0.02, shape).astype(np.float32) for name, shape in shapes}
    return model, parameters.nest(flat)
