"""Loads models that write from a run's directory or a released folder.

    python -m experiments.folnet_language.load --run=runs/books --to=models/books

writes a folder for `from_pretrained`, of a language model also in PyTorch's `transformers`: the model, its
tokenizer, `generation_config.json` and a model card. From Python: `trained = load("runs/books")`.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from absl import flags

import logic_zoo
from experiments import runtime
from experiments.exporting.interface import Exportable, describe_source
from experiments.exporting.pretrained import NEW_TOKENS
from experiments.exporting.writers import of_writer, words_of
from experiments.folnet_language.config import Config
from experiments.folnet_language.train import abstract_state
from experiments.folnet_pretrain import cards, vocabularies
from experiments.runtime import releasing
from experiments.runtime.workdir import EXPERIMENT, WorkdirError, read_json
from folnet import FOLNetForCausalLM, FOLNetForConditionalGeneration
from folnet.tokenization import WordPieceTokenizer
from logic_zoo.writing import write_whole

GENERATION_FILE = "generation_config.json"


@dataclasses.dataclass(frozen=True)
class Trained:
    """A model, its parameters, the tokenizer, the checkpoint's step and the run's config."""

    model: FOLNetForCausalLM | FOLNetForConditionalGeneration
    params: Any
    tokenizer: WordPieceTokenizer
    step: int
    config: Config

    def save_pretrained(self, directory: Path | str) -> None:
        """Writes the model, its tokenizer, and the tokens that begin and end a text or are never written."""
        ids = {"bos_token_id": self.tokenizer.cls_id, "eos_token_id": self.tokenizer.sep_id}
        ids |= {"pad_token_id": self.tokenizer.pad_id}
        if self.config.data.pairs:
            ids["decoder_start_token_id"] = self.tokenizer.cls_id
        never = words_of(self.model, self.tokenizer).never
        settings = ids | {"max_new_tokens": self.config.new_tokens, "suppress_tokens": never}
        self.tokenizer.save_pretrained(directory, closes=self.config.data.pairs)
        write_whole(Path(directory) / GENERATION_FILE, json.dumps(settings, indent=2) + "\n")
        cards.write(directory, self.card())
        self.model.save_pretrained(directory, self.params)  # its presence makes the folder a model

    def card(self) -> str:
        """Returns the model card."""
        config, pairs = self.config, self.config.data.pairs
        tokens = {"tokens of a text": config.data.length}
        tokens |= {"tokens of a target": config.data.target_length} if pairs else {}
        settings = {"updates": self.step, "batch": config.batch_size, "peak rate": config.lr}
        settings |= tokens | {"words and pieces": len(self.tokenizer.vocabulary), "seed": config.seed}
        return cards.written(
            self.model,
            "text2text-generation" if pairs else "text-generation",
            "FOLNet that answers a text with a text" if pairs else "FOLNet language model",
            f"trained by `experiments.folnet_language` of logic-zoo {logic_zoo.__version__}.",
            {"training": {key: f"{value:,}" for key, value in settings.items()}},
        )


def is_run(path: Path | str) -> bool:
    """Whether a path is a run's directory or a released folder of this experiment."""
    try:
        found = read_json(releasing.find(path) / "config.json")
    except (OSError, ValueError, WorkdirError):
        return False
    return found.get(EXPERIMENT) == Config.experiment


def load(path: Path | str, *, step: int | None = None) -> Trained:
    """Loads a trained model.

    Args:
        path: a run's directory, or a released folder.
        step: step of the checkpoint; the last one by default.

    Raises:
        ValueError: the path holds no run, or its vocabulary is missing and cannot be learned again.
        runtime.CheckpointError: there is no such checkpoint, or it is damaged.
    """
    path = releasing.find(path)
    config = releasing.read_run_config(Config, path)
    data = config.data
    tokenizer = vocabularies.read(path, data.lowercase, lambda: data.open_rows().tokenizer)
    restored = releasing.restore(path, abstract_state(config), step)
    return Trained(config.make_model(), restored.state.params, tokenizer, restored.step, config)


def open_model(path: Path, *, step: int | None = None, seed: int = 0) -> Exportable:
    """Opens a model for export, as greedy generation; see `load` and `exporting.writers`."""
    trained = load(path, step=step)
    exportable = of_writer(trained.model, trained.params, trained.tokenizer, NEW_TOKENS)
    return dataclasses.replace(exportable, source=describe_source(trained.params, trained.step))


def main() -> None:
    """Writes the folder and prints its path."""
    target, trained = Path(flags.FLAGS.to), load(flags.FLAGS.run)
    trained.save_pretrained(target)
    print(f"{target}: {type(trained.model).__name__}, step {trained.step}")


if __name__ == "__main__":
    flags.DEFINE_string("run", None, "directory of a run, or a released folder", required=True)
    flags.DEFINE_string("to", None, "output directory", required=True)
    runtime.run_program(main, reports=(ValueError, runtime.CheckpointError))
