"""Starting a run from the weights of another: `--config.init_from=PATH`.

Arrays are matched by name and shape. What does not fit keeps its initial value and is reported by name, on
the terminal and in the run's `init_from.json`. Rows of characters are matched by character, if the folder has
a vocabulary of its own.
"""

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from experiments.runtime import packing, processes, releasing
from experiments.runtime.checkpoints import Checkpoints, checksum
from experiments.runtime.workdir import WorkdirError, read_json, write_json
from logic_zoo import folders

RECORD = "init_from.json"
PARAMS, OPTIMIZER = "params/", "opt_state/"
"""Prefixes of the names of parameters and of the optimizer's arrays in a state."""
SYMBOLS = PARAMS + "embedding/tokens"
"""The table with a row per symbol, of models that read characters."""


@dataclasses.dataclass(frozen=True)
class Start:
    """Arrays to start from, and what did not fit.

    Attributes:
        path: where they are from.
        arrays: those that fit, by their names in the state.
        misfits: a line for each name that is missing, unexpected or of another shape, and for symbols without
            a row.
        kept: by name of an array, a mask of the rows [V] that keep their initial values.
        note: what is known about the ids of the symbols, "" if there is no doubt.
    """

    path: str
    arrays: Mapping[str, Any]
    misfits: tuple[str, ...]
    kept: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    note: str = ""

    def put(self, state: Any) -> Any:
        """Returns a state with these arrays in the place of its own, in its dtypes and shardings."""
        names = iter(packing.named(state))

        def placed(leaf: Any) -> Any:
            array = self.arrays.get(name := next(names))
            if array is None:
                return leaf
            if (mask := self.kept.get(name)) is not None:
                array = jnp.where(mask[:, None], leaf, array)
            if isinstance(array, jax.Array) and (array.dtype, array.sharding) == (leaf.dtype, leaf.sharding):
                return array
            # From the host, since an array on one device cannot be put on the devices of other processes.
            return jax.device_put(np.asarray(array).astype(leaf.dtype), leaf.sharding)

        return jax.tree.map(placed, state)

    def record(self, workdir: Path) -> None:
        """Writes the record of the start.

        Raises:
            WorkdirError: the run has begun from other arrays, before it was killed without a checkpoint.
        """
        record = {
            "init_from": self.path,
            "taken": len(self.arrays),
            "checksum": checksum(dict(self.arrays)),
            "misfits": list(self.misfits),
            **({"note": self.note} if self.note else {}),
        }
        path = workdir / RECORD
        if path.exists() and (begun := read_json(path)) != record:
            changed = ", ".join(name for name in record if begun.get(name) != record[name])
            raise WorkdirError(
                f"{path}: got another start ({changed}) than when the run began; choose another workdir, or "
                f"restore {self.path}"
            )
        if processes.is_first():
            write_json(path, record)


def read(path: str, abstract: Any, workdir: Path | None = None, *, optimizer: bool = False) -> Start:
    """Reads the arrays that fit a state.

    Args:
        path: a run's directory, a released folder or its name, or a folder for `from_pretrained`. The state
            of a run with exactly this structure is verified by its checksum.
        abstract: the state to start, as `jax.ShapeDtypeStruct`s with shardings.
        workdir: of the run to start. If it has the path below it, that is read: a run and those that came
            before it can then be moved together.
        optimizer: whether to also take the optimizer's state.

    Raises:
        WorkdirError: there are no weights, none fits, or the optimizer's state is missing.
        CheckpointError: they are damaged.
    """
    prefixes = (PARAMS, OPTIMIZER) if optimizer else (PARAMS,)
    try:
        below = None if workdir is None else workdir / path
        folder = below if below is not None and below.is_dir() else releasing.find(path)
        arrays, kept, unmatched, note = _by_symbol(folder, _arrays(folder, abstract))
    except ValueError as error:
        raise WorkdirError(f"init_from: {error}") from error
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name in arrays):
            raise WorkdirError(f"init_from: got {path} without {prefix[:-1]}, expected a run's state with it")
    wanted = {name: leaf for name, leaf in packing.named(abstract).items() if name.startswith(prefixes)}
    given = {name: array for name, array in arrays.items() if name.startswith(prefixes)}
    shapes = {name: leaf.shape for name, leaf in wanted.items()}
    lines = folders.misfits(shapes, {name: array.shape for name, array in given.items()})
    fitting = {name: array for name, array in given.items() if name in wanted and array.shape == shapes[name]}
    if not any(name.startswith(PARAMS) for name in fitting):
        raise WorkdirError(
            f"init_from: got {path}, expected parameters of this model; none fits:\n  " + "\n  ".join(lines)
        )
    if note and processes.is_first():
        print(note, file=sys.stderr)
    return Start(str(path), fitting, (*lines, *unmatched), kept, note)


def _by_symbol(
    folder: Path, arrays: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, np.ndarray], list[str], str]:
    """Puts the rows of a folder's symbols into the order of training's ids.

    Returns the arrays, the mask of rows that have no symbol there, the lines about symbols on one side alone,
    and the note of the folder's vocabulary.
    """
    from tp_transformer.mathematics.vocabulary import DEFAULT, VOCABULARY_FILE, Vocabulary

    if SYMBOLS not in arrays or not (folder / VOCABULARY_FILE).is_file():
        return arrays, {}, [], ""
    table, own = np.asarray(arrays[SYMBOLS]), Vocabulary.load(folder)
    if len(table) != own.size:
        raise ValueError(
            f"{folder}: got {len(table)} rows of symbols, expected {own.size} as of its vocabulary"
        )
    rows = DEFAULT.rows_in(own)
    missing = rows < 0
    names = {**{id_: name for name, id_ in DEFAULT.special_ids.items()}}
    names |= {DEFAULT.first + place: character for place, character in enumerate(DEFAULT.characters)}
    lines = [
        f"{SYMBOLS}: got no row of {names[row]!r}, expected one" for row in np.flatnonzero(missing).tolist()
    ]
    lines += [
        f"{SYMBOLS}: got a row of id {row} there, expected none of such a symbol"
        for row in sorted({*range(own.size)} - {*rows.tolist()})
    ]
    kept = {SYMBOLS: missing} if missing.any() else {}
    return {**arrays, SYMBOLS: table[rows]}, kept, lines, own.note


def _arrays(folder: Path, abstract: Any) -> dict[str, Any]:
    """Returns all arrays of a folder by their names in a state."""
    if (folder / folders.WEIGHTS_FILE).is_file():
        path = folder / folders.WEIGHTS_FILE
        with folders.naming(path, "parameters", safetensors.SafetensorError):
            table = safetensors.numpy.load_file(path)
        return {PARAMS + name.replace(".", "/"): array for name, array in table.items()}
    checkpoints = Checkpoints(folder / "checkpoints", every=1, keep=2)
    if releasing.is_released(folder):
        arrays: dict[str, Any] = packing.read_arrays(folder)[0]
    elif steps := checkpoints.steps():
        arrays = checkpoints.arrays(steps[0])
    else:
        raise ValueError(
            f"{folder}: got no weights, expected a run with a checkpoint, a released folder, or one for "
            "`from_pretrained` (the convert program of an experiment makes one from the authors' files)"
        )
    shapes = {name: leaf.shape for name, leaf in packing.named(abstract).items()}
    if {name: array.shape for name, array in arrays.items()} == shapes:
        return packing.named(releasing.restore(folder, abstract).state)  # compares the checksum
    return arrays
