"""Checkpoints of FOLNet's authors to ours, and back.

    python -m experiments.folnet_pretrain.convert folnet_base out/folnet-base
    python -m experiments.folnet_pretrain.convert --reverse out/folnet-base theirs/folnet_base

The first reads `folnet_base.cfg` and `folnet_base.pt`, executing nothing in them, and writes `config.json`
and `model.safetensors`, which `from_pretrained` loads. The second writes the authors' two files. The class of
model is inferred from the tensors, or `--model` names it.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from absl import app, flags

import folnet
from experiments.runtime import torch_files
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


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) != 3:
        raise app.UsageError(f"{len(arguments) - 1} names, expected two: what is read, and what is written")
    values = flags.FLAGS
    try:
        turn = to_authors if values.reverse else from_authors
        print(turn(arguments[1], arguments[2], values.model))
    except (ValueError, OSError) as error:
        raise app.UsageError(str(error)) from error


def from_authors(prefix: str, directory: str, name: str | None = None) -> str:
    """Reads prefix.cfg and prefix.pt, writes a directory.

    Args:
        prefix: the files' path without their endings.
        directory: made if it does not exist.
        name: of the class of model; None: inferred from the tensors.

    Returns:
        A summary to print.

    Raises:
        ValueError: a file is damaged or missing, or does not fit; the directory holds a model.
    """
    settings, weights = Path(f"{prefix}.cfg"), Path(f"{prefix}.pt")
    for path in (settings, weights):
        if not path.is_file():
            raise ValueError(f"{path} is not there; expected {settings} and {weights}")
    _refuse_to_replace(Path(directory) / pretrained.CONFIG_FILE, Path(directory) / pretrained.WEIGHTS_FILE)
    with _naming(settings):
        theirs = json.loads(settings.read_text(encoding="utf-8"))
        if not isinstance(theirs, dict):
            raise ValueError(f"it holds {theirs!r:.40}, expected settings by name")
        convert.from_torch_config(theirs)
    state = torch_files.read_state_dict(weights)
    cls = MODELS[name] if name else convert.class_of(theirs, state)
    with _naming(weights):
        config, params = convert.from_torch(theirs, state, model=cls)
    cls(config).save_pretrained(directory, params)
    lines = [f"{directory}: {_described(cls.__name__, params)}"]
    if foreign := convert.left_out(theirs, state, cls):
        lines.append(f"left out, of other heads: {', '.join(foreign)}")
    return "\n".join(lines)


def to_authors(directory: str, prefix: str, name: str | None = None) -> str:
    """Reads a directory, writes prefix.cfg and prefix.pt.

    Args:
        directory: of a model.
        prefix: the files' path without their endings.
        name: of the class of model; None: the one it was saved from.

    Returns:
        A summary to print.

    Raises:
        ValueError: a file is damaged, missing, or would be replaced; the authors' code lacks the model.
    """
    settings, weights = Path(f"{prefix}.cfg"), Path(f"{prefix}.pt")
    _refuse_to_replace(settings, weights)
    _, architecture = pretrained.read_config(directory)
    name = name or architecture
    if name not in MODELS:
        raise ValueError(f"{directory}: holds a {name!r}, expected one of {', '.join(MODELS)}")
    model, params = MODELS[name].from_pretrained(directory)
    theirs, state = convert.to_torch(model.config, params)
    settings.parent.mkdir(parents=True, exist_ok=True)
    torch_files.save(weights, state)
    settings.write_text(json.dumps(theirs, indent=2) + "\n", encoding="utf-8")
    return f"{settings}, {weights}: {_described(name, params)}"


def _refuse_to_replace(*paths: Path) -> None:
    if there := [str(path) for path in paths if path.exists()]:
        raise ValueError(f"{', '.join(there)}: there already, expected a new name")


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """What is wrong with a file, with its name."""
    try:
        yield
    except ValueError as error:  # of JSON and of its encoding, too
        raise ValueError(f"{path}: {error}") from error


def _described(name: str, params: dict) -> str:
    return f"{name}, {sum(leaf.size for leaf in parameters.flatten(params).values()):,} parameters"


if __name__ == "__main__":
    flags.DEFINE_bool("reverse", False, "from ours to the authors'")
    flags.DEFINE_enum("model", None, list(MODELS), "class of the model; by default inferred from the tensors")
    app.run(main)
