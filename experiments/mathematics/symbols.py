"""Rows of symbols from a folder with a vocabulary of its own, in the order of training's ids."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments.runtime import Reordered
from tp_transformer.mathematics.vocabulary import DEFAULT, VOCABULARY_FILE, Vocabulary

SYMBOLS = "params/embedding/tokens"
"""The table with a row per symbol, by its name in a state."""


def reordered(folder: Path, arrays: dict[str, Any]) -> Reordered:
    """See `RunConfig.reordered`; the note is that of the folder's vocabulary."""
    if SYMBOLS not in arrays or not (folder / VOCABULARY_FILE).is_file():
        return Reordered(arrays)
    table, own = np.asarray(arrays[SYMBOLS]), Vocabulary.load(folder)
    if len(table) != own.size:
        raise ValueError(
            f"{folder}: got {len(table)} rows of symbols, expected {own.size} as of its vocabulary"
        )
    rows = DEFAULT.rows_in(own)
    missing = rows < 0
    names = {number: name for name, number in DEFAULT.special_ids.items()}
    names |= dict(enumerate(DEFAULT.characters, DEFAULT.first))
    lines = [f"{SYMBOLS}: no row of {names[row]!r}, expected one" for row in np.flatnonzero(missing).tolist()]
    lines += [
        f"{SYMBOLS}: got a row of id {row} there, expected none of such a symbol"
        for row in sorted({*range(own.size)} - {*rows.tolist()})
    ]
    kept = {SYMBOLS: missing} if missing.any() else {}
    return Reordered({**arrays, SYMBOLS: table[rows]}, kept, lines, own.note)
