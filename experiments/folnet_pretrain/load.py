"""Pretrained models, from a run's directory or a released folder.

    python -m experiments.folnet_pretrain.load --pretrained=runs/folnet --to=models/folnet

writes `config.json`, `model.safetensors` and `vocab.txt`, which `from_pretrained` of
`FOLNetForSequenceClassification` and the other classes of `folnet` reads. From Python:
`trained = load("runs/folnet")`.
"""

import dataclasses
from pathlib import Path
from typing import Any

from absl import flags

from experiments import runtime
from experiments.exporting.encoders import of_encoder
from experiments.exporting.interface import Exportable, describe_source
from experiments.folnet_pretrain.config import Config
from experiments.folnet_pretrain.train import BASELINE, abstract_state
from experiments.folnet_pretrain.train import VOCABULARY as KEPT
from experiments.runtime import releasing
from experiments.runtime.workdir import read_json
from folnet import FOLNetForPreTraining
from folnet.pretraining.files import VOCABULARY
from folnet.tokenization import WordPieceTokenizer


@dataclasses.dataclass(frozen=True)
class Trained:
    """A model with both heads, its parameters, its text's tokenizer, the step, and the run's config."""

    model: FOLNetForPreTraining
    params: Any
    tokenizer: WordPieceTokenizer
    step: int
    config: Config

    def save_pretrained(self, directory: Path | str) -> None:
        """Writes the model and its vocabulary, for `from_pretrained`."""
        self.model.save_pretrained(directory, self.params)
        self.tokenizer.save(Path(directory) / VOCABULARY)


def load(path: Path | str, *, step: int | None = None) -> Trained:
    """A trained model.

    Args:
        path: a run's directory (of a model, or `baseline` below it), or a released folder.
        step: of which checkpoint; the last by default.

    Raises:
        ValueError: the path holds no run, or its vocabulary is missing and cannot be learned again.
        runtime.CheckpointError: there is no such checkpoint, or it is damaged.
    """
    path = Path(path)
    config = releasing.read_run_config(Config, path)
    tokenizer = _tokenizer(path, config)
    restored = releasing.restore(path, abstract_state(config), step)
    model = config.model.make(config.data.pretrain_loss)
    return Trained(model, restored.state.params, tokenizer, restored.step, config)


def _tokenizer(path: Path, config: Config) -> WordPieceTokenizer:
    """The one in the workdir; of a released folder, learned again from the text and compared."""
    folders = (path, path.parent) if path.name == BASELINE else (path,)  # the run above has a baseline's
    for kept in (folder / KEPT for folder in folders):
        if kept.is_file():
            return WordPieceTokenizer.load(kept, lowercase=config.data.lowercase)
    tokenizer = config.data.open().tokenizer
    summary = path / "summary.json"
    if not summary.is_file():
        return tokenizer
    wanted = read_json(summary).get("results", {}).get("vocabulary")
    if wanted != tokenizer.fingerprint:
        raise ValueError(
            f"{path} was trained with the vocabulary {wanted}, its text now gives {tokenizer.fingerprint}: "
            "the text has changed since"
        )
    return tokenizer


def open_model(path: Path, *, step: int | None = None, seed: int = 0) -> Exportable:
    """Opens a pretrained model with its two heads for export; see `load`."""
    return of_pretraining(load(path, step=step))


def of_pretraining(trained: Trained) -> Exportable:
    """Tokens to masked words and the question about sentences, for texts of the length trained on."""
    exportable = of_encoder(
        trained.model, trained.params, trained.tokenizer, masks_padding=trained.config.mask_padding
    )
    source, lengths = describe_source(trained.params, trained.step), (trained.config.data.length,)
    return dataclasses.replace(exportable, source=source, lengths=lengths)


def main() -> None:
    """Makes a directory for `from_pretrained` of a run."""
    target, trained = Path(flags.FLAGS.to), load(flags.FLAGS.pretrained)
    trained.save_pretrained(target)
    print(f"{target}: {trained.config.model.name}, step {trained.step}, with its {VOCABULARY}")


if __name__ == "__main__":
    flags.DEFINE_string(
        "pretrained", None, "run or released folder to make a directory of for fine-tuning", required=True
    )
    flags.DEFINE_string("to", None, "where it goes", required=True)
    runtime.run_program(main, reports=(ValueError, runtime.CheckpointError))
