"""Pretrained models: a run released as a small folder, gone on with, or made a directory to fine-tune from.

    python -m experiments.folnet_weights --pack=runs/folnet --to=results/folnet/NAME
    python -m experiments.folnet_weights --unpack=results/folnet/NAME --to=runs/folnet
    python -m experiments.folnet_weights --pretrained=runs/folnet --to=models/folnet

The first releases a run, the second makes a workdir of it in which training goes on. The third writes
`config.json`, `model.safetensors` and `vocab.txt`, from which `FOLNetForSequenceClassification` and the other
classes of `folnet` start by `from_pretrained`. From Python: `trained = load("runs/folnet")`.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import app, flags, logging

from experiments import folnet_pretrain as experiment
from experiments import runtime
from experiments.configs.folnet_pretrain import Config
from experiments.runtime import releasing
from experiments.runtime.workdir import read_json
from folnet import FOLNetForPreTraining
from folnet.pretraining.files import VOCABULARY
from folnet.tokenization import WordPieceTokenizer


@dataclasses.dataclass(frozen=True)
class Trained:
    """A model with parameters.

    Attributes:
        model: the module, with both heads.
        params: its parameters.
        tokenizer: of the text it was trained on.
        step: updates made.
        config: of the run.
    """

    model: FOLNetForPreTraining
    params: Any
    tokenizer: WordPieceTokenizer
    step: int
    config: Config

    def save_pretrained(self, directory: Path | str) -> None:
        """Writes the model and its vocabulary, for `from_pretrained`."""
        self.model.save_pretrained(directory, self.params)
        self.tokenizer.save(Path(directory) / VOCABULARY)


def read_config(path: Path | str) -> Config:
    """The config of a run or of a released folder.

    Raises:
        ValueError: naming the path, if there is none or it is not one of `experiments.folnet_pretrain`.
    """
    return releasing.read_run_config(Config, path, "experiments.folnet_pretrain")


def load(path: Path | str, *, step: int | None = None) -> Trained:
    """A trained model.

    Args:
        path: a run's directory (of a model, or `baseline` below it), or a released folder.
        step: of which checkpoint; the last by default.

    Raises:
        ValueError: the path holds no run, or its vocabulary is neither there nor can be made again.
        runtime.CheckpointError: there is no such checkpoint, or it is damaged.
    """
    path = Path(path)
    config = read_config(path)
    tokenizer = _tokenizer(path, config)
    restored = releasing.restore(path, experiment.abstract_state(config), step)
    model = config.model.make(config.data.pretrain_loss)
    return Trained(model, restored.state.params, tokenizer, restored.step, config)


def _tokenizer(path: Path, config: Config) -> WordPieceTokenizer:
    """The one that the workdir keeps; of a released folder, made again from the text and compared."""
    for folder in (path, path.parent):  # a baseline's vocabulary is that of the run above it
        if (folder / experiment.VOCABULARY).is_file() and (
            folder == path or path.name == experiment.BASELINE
        ):
            kept = folder / experiment.VOCABULARY
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


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}")
    values = flags.FLAGS
    target = Path(values.to)
    try:
        if values.pretrained:
            trained = load(values.pretrained)
            trained.save_pretrained(target)
            print(f"{target}: {trained.config.model.name}, step {trained.step}, with its {VOCABULARY}")
            return
        source, release = Path(values.pack or values.unpack), bool(values.pack)
        abstract = experiment.abstract_state(read_config(source))
        print(releasing.transfer(source, target, abstract, release=release))
    except (ValueError, runtime.CheckpointError) as error:
        raise app.UsageError(str(error)) from error


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.DEFINE_string("pack", None, "directory of a run to release")
    flags.DEFINE_string("unpack", None, "released folder to go on with")
    flags.DEFINE_string("pretrained", None, "run or released folder to make a directory of for fine-tuning")
    flags.DEFINE_string("to", None, "where it goes", required=True)
    flags.mark_flags_as_mutual_exclusive(["pack", "unpack", "pretrained"], required=True)
    app.run(main)
