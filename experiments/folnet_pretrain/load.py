"""Loads pretrained models from a run's directory or a released folder.

    python -m experiments.folnet_pretrain.load --pretrained=runs/folnet --to=models/folnet

writes `config.json`, `model.safetensors` and `vocab.txt`, which `from_pretrained` reads
(`FOLNetForSequenceClassification` and the other classes of `folnet`). From Python:
`trained = load("runs/folnet")`.
"""

import dataclasses
from pathlib import Path
from typing import Any

from absl import flags

from experiments import runtime
from experiments.exporting.encoders import of_encoder
from experiments.exporting.interface import Exportable, describe_source
from experiments.folnet_pretrain import vocabularies
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
        """Writes the model and its vocabulary to a directory for `from_pretrained`."""
        self.model.save_pretrained(directory, self.params)
        self.tokenizer.save(Path(directory) / VOCABULARY)


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
