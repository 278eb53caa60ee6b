"""Starting a run from the weights of another: `--config.init_from=PATH`.

Arrays are matched by name and shape. What does not fit keeps its initial value and is reported by name, on
the terminal and in the run's `init_from.json`. A config may first put arrays of another order into its own
(`RunConfig.reordered`).
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from experiments.runtime import packing, processes, releasing
from experiments.runtime.checkpoints import MIXED, PLAIN, Checkpoints, checksum
from experiments.runtime.config import Reordered
from experiments.runtime.workdir import WorkdirError, read_json, write_json
from logic_zoo import folders

RECORD = "init_from.json"
PARAMS, OPTIMIZER = "params/", "opt_state/"
"""Prefixes of the names of parameters and of the optimizer's arrays in a state."""


@dataclasses.dataclass(frozen=True)
class Start:
    """Arrays to start from, and what did not fit.

    Attributes:
        path: where they are from.
        arrays: those that fit, by their names in the state.
        misfits: a line for each name that is missing, unexpected or of another shape, and for each row that
            is missing or unexpected.
        kept: by name of an array, a mask of the rows that keep their initial values.
        note: what is known about the order of the rows, "" if there is no doubt.
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
        path = workdir / RECORD
        begun = read_json(path) if path.exists() else None
        name = MIXED if begun is None or MIXED in begun else PLAIN  # of a run from before words were mixed
        record = {
            "init_from": self.path,
            "taken": len(self.arrays),
            name: checksum(dict(self.arrays), mix=name == MIXED),
            "misfits": list(self.misfits),
            **({"note": self.note} if self.note else {}),
        }
        if begun is not None and begun != record:
            changed = ", ".join(name for name in record if begun.get(name) != record[name])
            raise WorkdirError(
                f"{path}: got another start ({changed}) than when the run began; choose another workdir, or "
                f"restore {self.path}"
            )
        if processes.is_first():
            write_json(path, record)


def read(
    path: str,
    abstract: Any,
    workdir: Path | None = None,
    *,
    optimizer: bool = False,
    reordered: Callable[[Path, dict[str, Any]], Reordered] = lambda folder, arrays: Reordered(arrays),
) -> Start:
    """Reads the arrays that fit a state.

    Args:
        path: a run's directory, a released folder or its name, or a folder for `from_pretrained`. The state
            of a run with exactly this structure is verified by its checksum.
        abstract: the state to start, as `jax.ShapeDtypeStruct`s with shardings.
        workdir: of the run to start. If it has the path below it, that is read: a run and those that came
            before it can then be moved together.
        optimizer: whether to also take the optimizer's state.
        reordered: puts the arrays of a folder into the order of the state; see `RunConfig.reordered`.

    Raises:
        WorkdirError: there are no weights, none fits, or the optimizer's state is missing.
        CheckpointError: they are damaged.
    """
    prefixes = (PARAMS, OPTIMIZER) if optimizer else (PARAMS,)
    try:
        below = None if workdir is None else workdir / path
        folder = below if below is not None and below.is_dir() else releasing.find(path)
        arrays, kept, unmatched, note = reordered(folder, _arrays(folder, abstract))
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
