"""Converts weights of the Mathematics Dataset to a folder for `from_pretrained`, and to the authors' file.

    python -m experiments.mathematics.convert best_eval_model.pt models/tp-transformer
    python -m experiments.mathematics.convert runs/mathematics models/mine
    python -m experiments.mathematics.convert --reverse models/mine theirs.pt

The first command reads the authors' file without executing anything in it, and writes `config.json`,
`model.safetensors`, `vocabulary.json` and files for PyTorch. The source can also be a run or a released
folder. The last command writes a file under the authors' names, for their program.
"""

from pathlib import Path

import jax
from absl import flags

from experiments import runtime
from experiments.mathematics.load import AUTHORS_HEADS, Trained, load
from experiments.runtime import torch_files
from experiments.runtime.workdir import refuse_to_replace
from logic_zoo.folders import CONFIG_FILE, WEIGHTS_FILE
from tp_transformer import convert
from tp_transformer.mathematics.vocabulary import TOKENIZER_FILES, VOCABULARY_FILE
from tp_transformer.pretrained import CODE_FILE


def main(source: str, target: str) -> None:
    """Runs the conversion that the command line asks for."""
    written = [Path(target)] if flags.FLAGS.reverse else folder_files(Path(target))
    refuse_to_replace(*written)
    trained = load(source, num_heads=flags.FLAGS.num_heads)
    print((to_authors if flags.FLAGS.reverse else to_folder)(trained, Path(target)))


def folder_files(directory: Path) -> list[Path]:
    """Returns the paths that `to_folder` writes."""
    names = (CONFIG_FILE, WEIGHTS_FILE, CODE_FILE, VOCABULARY_FILE, *TOKENIZER_FILES)
    return [directory / name for name in names]


def to_folder(trained: Trained, directory: Path) -> str:
    """Writes a folder for `from_pretrained`; returns a summary to print."""
    trained.save_pretrained(directory)
    lines = [f"{directory}: {_described(trained)}", trained.vocabulary.note]
    return "\n".join(filter(None, lines))


def to_authors(trained: Trained, path: Path) -> str:
    """Writes a state dict under the authors' names; returns a summary to print."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch_files.save(path, convert.to_torch(trained.model, trained.params))
    return f"{path}: {_described(trained)}"


def _described(trained: Trained) -> str:
    count = sum(leaf.size for leaf in jax.tree.leaves(trained.params))
    ids = ", ".join(f"{name} {symbol}" for name, symbol in trained.vocabulary.special_ids.items())
    return f"{type(trained.model).__name__}, {count:,} parameters, {trained.vocabulary.size} symbols ({ids})"


if __name__ == "__main__":
    flags.DEFINE_bool("reverse", False, "write a file under the authors' names instead of a folder")
    flags.DEFINE_integer("num_heads", AUTHORS_HEADS, "heads of the authors' model, which their file lacks")
    runtime.run_program(
        main, takes=("the source", "the target"), reports=(ValueError, OSError, runtime.CheckpointError)
    )
