"""Loads pretrained models from a run's directory or a released folder.

    python -m experiments.folnet_pretrain.load --pretrained=runs/folnet --to=models/folnet

writes `config.json`, `model.safetensors` and the files of the tokenizer, with its casing, which
`from_pretrained` reads (`FOLNetForSequenceClassification` and the other classes of `folnet`), and a model
card. From Python: `trained = load("runs/folnet")`.
"""

import dataclasses
from pathlib import Path
from typing import Any

from absl import flags

import logic_zoo
from experiments import runtime
from experiments.exporting.encoders import of_encoder
from experiments.exporting.interface import Exportable, describe_source
from experiments.folnet_pretrain import cards, vocabularies
from experiments.folnet_pretrain.config import Config
from experiments.folnet_pretrain.train import BASELINE, abstract_state
from experiments.runtime import releasing
from folnet import FOLNetForPreTraining
from folnet.pretraining.files import VOCABULARY
from folnet.tokenization import WordPieceTokenizer


@dataclasses.dataclass(frozen=True)
class Trained:
    """A model with both heads, its parameters, the tokenizer, the checkpoint's step and the run's config."""

    model: FOLNetForPreTraining
    params: Any
    tokenizer: WordPieceTokenizer
    step: int
    config: Config

    def save_pretrained(self, directory: Path | str) -> None:
        """Writes the model, its tokenizer and a model card to a directory for `from_pretrained`."""
        self.tokenizer.save_pretrained(directory)
        cards.write(directory, self.card())
        self.model.save_pretrained(directory, self.params)  # its presence makes the folder a model

    def card(self) -> str:
        """Returns the model card."""
        config, data = self.config, self.config.data
        settings = {"updates": self.step, "batch": config.batch_size, "peak rate": config.lr}
        settings |= {"tokens of a text": data.length, "fraction of tokens to predict": data.mask_rate}
        settings |= {"words and pieces": len(self.tokenizer.vocabulary), "seed": config.seed}
        return cards.written(
            self.model,
            "fill-mask",
            f"FOLNet pretrained with the loss {data.pretrain_loss}",
            f"trained by `experiments.folnet_pretrain` of logic-zoo {logic_zoo.__version__}.",
            {"training": {key: f"{value:,}" for key, value in settings.items()}},
        )


def load(path: Path | str, *, step: int | None = None) -> Trained:
    """Loads a trained model.

    Args:
        path: a run's directory (the model's, or its subdirectory `baseline`), or a released folder.
        step: step of the checkpoint; the last one by default.

    Raises:
        ValueError: the path holds no run, or its vocabulary is missing and cannot be learned again.
        runtime.CheckpointError: there is no such checkpoint, or it is damaged.
    """
    path = Path(path)
    config = releasing.read_run_config(Config, path)
    # A baseline uses its parent's.
    parent = path.parent if path.name == BASELINE else None
    data = config.data
    tokenizer = vocabularies.read(path, data.lowercase, lambda: data.open().tokenizer, parent)
    restored = releasing.restore(path, abstract_state(config), step)
    model = config.model.make(config.data.pretrain_loss)
    return Trained(model, restored.state.params, tokenizer, restored.step, config)


def open_model(path: Path, *, step: int | None = None, seed: int = 0) -> Exportable:
    """Opens a pretrained model with both heads for export; see `load`."""
    return of_pretraining(load(path, step=step))


def of_pretraining(trained: Trained) -> Exportable:
    """Returns a model to export: from tokens to both heads' logits, at the length of its training texts."""
    exportable = of_encoder(
        trained.model, trained.params, trained.tokenizer, masks_padding=trained.config.mask_padding
    )
    source, lengths = describe_source(trained.params, trained.step), (trained.config.data.length,)
    return dataclasses.replace(exportable, source=source, lengths=lengths)


def main() -> None:
    """Writes the directory for `from_pretrained` and prints its path."""
    target, trained = Path(flags.FLAGS.to), load(flags.FLAGS.pretrained)
    trained.save_pretrained(target)
    print(f"{target}: {trained.config.model.name}, step {trained.step}, with {VOCABULARY}")


if __name__ == "__main__":
    flags.DEFINE_string("pretrained", None, "directory of a run, or a released folder", required=True)
    flags.DEFINE_string("to", None, "output directory, for fine-tuning", required=True)
    runtime.run_program(main, reports=(ValueError, runtime.CheckpointError))
