"""Directories written by `save_pretrained`, as functions of named arrays."""

import dataclasses
from pathlib import Path

from experiments.exporting.encoders import ENCODERS, of_encoder
from experiments.exporting.interface import Exportable, describe_source
from experiments.exporting.writers import WRITERS, of_writer
from folnet import pretrained
from folnet.pretraining.files import VOCABULARY
from folnet.tokenization import WordPieceTokenizer

NEW_TOKENS = 32


def of_pretrained(path: Path, new_tokens: int = NEW_TOKENS) -> Exportable:
    """Opens a directory that `save_pretrained` wrote: a FOLNet, or a Transformer with the same heads.

    Raises:
        ValueError: if a file is damaged or missing, or the class cannot be exported.
    """
    _, name = pretrained.read_config(path)
    known = ENCODERS | WRITERS
    if name not in known:
        raise ValueError(f"{path}: got a {name!r}, expected one of {', '.join(map(repr, known))}")
    model, params = known[name].from_pretrained(path)
    tokenizer = WordPieceTokenizer.from_pretrained(path) if (path / VOCABULARY).is_file() else None
    if name in WRITERS:
        exportable = of_writer(model, params, tokenizer, new_tokens)
    else:
        exportable = of_encoder(model, params, tokenizer)
    source = {"pretrained": str(path), "class": name, **describe_source(params, None)}
    return dataclasses.replace(exportable, source=source | {"config": model.config.to_dict()})
