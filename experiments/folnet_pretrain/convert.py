"""Converts the checkpoints of FOLNet's authors to ours and back.

    python -m experiments.folnet_pretrain.convert folnet_base out/folnet-base
    python -m experiments.folnet_pretrain.convert --reverse out/folnet-base theirs/folnet_base

The first command reads `folnet_base.cfg` and `folnet_base.pt` without executing anything in them, and writes
`config.json` and `model.safetensors`, which `from_pretrained` loads. The second writes the authors' two
files. The model class is inferred from the tensors unless `--model` names it.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from absl import flags

import folnet
from experiments import runtime
from experiments.runtime import torch_files
from experiments.runtime.workdir import refuse_to_replace
from folnet import convert, parameters, pretrained

MODELS = {
    model.__name__: model
    for model in (
        folnet.FOLNet,
        folnet.FOLNetForPreTraining,
        folnet.FOLNetForMaskedLM,
        folnet.FOLNetForSequenceClassification,
        folnet.FOLNetForMultipleChoice,
        folnet.FOLNetForQuestionAnswering,
    )
}


def main(source: str, target: str) -> None:
    """Runs the conversion that the command line asks for."""
    turn = to_authors if flags.FLAGS.reverse else from_authors
    print(turn(source, target, flags.FLAGS.model))


def from_authors(prefix: str, directory: str, name: str | None = None) -> str:
    """Reads prefix.cfg and prefix.pt and writes a directory for `from_pretrained`.

    Args:
        prefix: path of the files without extensions.
        directory: created if it does not exist.
        name: the model class; None infers it from the tensors.

    Returns:
        A summary to print.

    Raises:
        ValueError: a file is missing, damaged or does not match, or the directory already holds a model.
    """
    settings, weights = Path(f"{prefix}.cfg"), Path(f"{prefix}.pt")
    for path in (settings, weights):
        if not path.is_file():
            raise ValueError(f"{path}: file not found, expected {settings} and {weights}")
    files = (pretrained.CONFIG_FILE, pretrained.WEIGHTS_FILE, pretrained.CODE_FILE)
    refuse_to_replace(*(Path(directory) / name for name in files))
    with _naming(settings):
        theirs = json.loads(settings.read_text(encoding="utf-8"))
        if not isinstance(theirs, dict):
            raise ValueError(f"got {theirs!r:.40}, expected a JSON object of settings")
        convert.from_torch_config(theirs)
    state = torch_files.read_state_dict(weights)
    cls = MODELS[name] if name else convert.class_of(theirs, state)
    with _naming(weights):
        config, params = convert.from_torch(theirs, state, model=cls)
    cls(config).save_pretrained(directory, params)
    lines = [f"{directory}: {_described(cls.__name__, params)}"]
    if foreign := convert.left_out(theirs, state, cls):
        lines.append(f"skipped tensors of other heads: {', '.join(foreign)}")
    return "\n".join(lines)


def to_authors(directory: str, prefix: str, name: str | None = None) -> str:
    """Reads a model's directory and writes prefix.cfg and prefix.pt.

    Args:
        directory: a directory with config.json and model.safetensors.
        prefix: path of the files without extensions.
        name: the model class; None takes the one that was saved.

    Returns:
        A summary to print.

    Raises:
        ValueError: a file is missing, damaged or would be overwritten, or the authors' code has no such
            model.
    """
    settings, weights = Path(f"{prefix}.cfg"), Path(f"{prefix}.pt")
    refuse_to_replace(settings, weights)
    _, architecture = pretrained.read_config(directory)
    name = name or architecture
    if name not in MODELS:
        raise ValueError(f"{directory}: got a {name!r}, expected one of {', '.join(map(repr, MODELS))}")
    model, params = MODELS[name].from_pretrained(directory)
    theirs, state = convert.to_torch(model.config, params)
    settings.parent.mkdir(parents=True, exist_ok=True)
    torch_files.save(weights, state)
    settings.write_text(json.dumps(theirs, indent=2) + "\n", encoding="utf-8")
    return f"{settings}, {weights}: {_described(name, params)}"


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Puts the path of a file before the message of a `ValueError` raised inside."""
    try:
        yield
    except ValueError as error:  # includes invalid JSON and invalid UTF-8
        raise ValueError(f"{path}: {error}") from error


def _described(name: str, params: dict) -> str:
    return f"{name}, {sum(leaf.size for leaf in parameters.flatten(params).values()):,} parameters"


if __name__ == "__main__":
    flags.DEFINE_bool("reverse", False, "convert our format to the authors'")
    flags.DEFINE_enum("model", None, list(MODELS), "model class; by default inferred from the tensors")
    runtime.run_program(main, takes=("the source", "the target"), reports=(ValueError, OSError))
