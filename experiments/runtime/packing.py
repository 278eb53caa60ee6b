"""A whole run in a folder small enough to commit: its config, its record, and its last state in one file.

    pack(workdir, abstract, folder)      # config.json, metrics.jsonl, summary.json and state.safetensors
    unpack(folder, abstract, workdir)    # a workdir in which the run's command goes on
    read_state(folder, abstract)         # the state alone

The state's file is read by anything that reads safetensors: an array for each leaf, named by its path. Random
keys are kept as their words. Its metadata have the step, the progress, and a checksum of both and the arrays,
since the format itself has none; files from before there was one are read without it.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from experiments.runtime.checkpoints import CheckpointError, Checkpoints, Restored, checksum_with
from experiments.runtime.workdir import WorkdirError, read_json, whole, write_json

STATE = "state.safetensors"
_RECORDS = ("config.json", "metrics.jsonl", "summary.json")


def pack(workdir: Path, abstract: Any, folder: Path, *, step: int | None = None) -> Path:
    """Puts a run into a folder, which is replaced if it holds one already; returns the file of the state.

    `abstract` is the state as `jax.ShapeDtypeStruct`s with shardings. Of the checkpoints the last one that is
    intact is taken, or that of `step`.

    Raises:
        CheckpointError: there is no checkpoint, or none is intact.
        WorkdirError: the folder holds something else.
    """
    checkpoints = Checkpoints(workdir / "checkpoints", every=1, keep=2)
    restored = checkpoints.restore(abstract) if step is None else checkpoints.read(step, abstract)
    if restored is None:
        raise CheckpointError(f"there is no checkpoint in {checkpoints.directory}")
    there = {path.name for path in folder.glob("*")} - {STATE, *_RECORDS}
    # Hidden files are ours (a state whose writing was interrupted) or nobody's.
    endings = (".png", ".gif", ".mp4", ".md")
    if others := sorted(name for name in there if name[0] != "." and not name.endswith(endings)):
        raise WorkdirError(f"folder {folder} holds {others[0]!r}, which no packed run has; choose another")
    folder.mkdir(parents=True, exist_ok=True)
    for name in _RECORDS:
        (folder / name).unlink(missing_ok=True)
        if (workdir / name).exists():
            shutil.copyfile(workdir / name, folder / name)
    write_state(folder / STATE, restored)
    return folder / STATE


def unpack(folder: Path, abstract: Any, workdir: Path) -> Restored:
    """Makes a workdir, new or empty, of a packed run, so that its command continues it there.

    Raises:
        WorkdirError: the workdir holds something, or the folder's config is damaged.
        CheckpointError: the folder has no state, or one that is damaged or does not fit.
    """
    if workdir.exists() and any(workdir.iterdir()):
        raise WorkdirError(f"workdir {workdir} is not empty; choose another")
    restored, config = read_state(folder, abstract), read_json(folder / "config.json")
    workdir.mkdir(parents=True, exist_ok=True)
    # The config last: a workdir without one is refused, so one that was made by half is not taken for a run.
    checkpoints = Checkpoints(workdir / "checkpoints", every=1, keep=2)
    checkpoints.save(restored.step, restored.state, restored.progress)
    checkpoints.close()
    if (folder / "metrics.jsonl").exists():
        shutil.copyfile(folder / "metrics.jsonl", workdir / "metrics.jsonl")
    write_json(workdir / "config.json", config)
    return restored


def write_state(path: Path, restored: Restored) -> None:
    """Writes a state with its step and progress as one file, whole or not at all."""
    arrays = {
        name: np.array(jax.device_get(leaf), order="C") for name, leaf in _named(restored.state).items()
    }
    record = {"step": str(restored.step), "progress": json.dumps(restored.progress)}
    record["checksum"] = str(checksum_with(restored.state, [restored.step, restored.progress]))
    with whole(path) as temporary:
        save_file(arrays, temporary, record)
        temporary.chmod(0o644)  # the library makes files that only their owner reads


def read_state(folder: Path, abstract: Any) -> Restored:
    """Reads the state of a packed run, with the shardings of `abstract`.

    Raises:
        CheckpointError: there is no such file, it is damaged, or its arrays are not those of `abstract`.
    """
    try:
        with safe_open(folder / STATE, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            record: Mapping[str, str] = file.metadata()
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder / STATE} cannot be read: {error}") from error
    try:
        step, progress = int(record["step"]), dict(json.loads(record["progress"]))
        if strange := set(record) - {"step", "progress", "checksum"}:
            raise ValueError(f"its metadata have {strange.pop()!r}")
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{folder / STATE} is damaged, or no packed run's: {error!r}") from error
    wanted = _named(abstract)
    if wrong := sorted(set(wanted) ^ set(arrays)):
        raise CheckpointError(f"{folder / STATE} does not hold this state: {wrong[0]} is on one side only")
    for name, leaf in wanted.items():
        array = arrays[name]
        if array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise CheckpointError(
                f"{folder / STATE}: {name} is {array.dtype}{list(array.shape)}, expected "
                f"{leaf.dtype}{list(leaf.shape)}"
            )
    state = jax.tree.unflatten(jax.tree.structure(abstract), [arrays[name] for name in wanted])

    def place(leaf, array):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            array = jax.random.wrap_key_data(array)
            if array.dtype != leaf.dtype:
                raise CheckpointError(f"random keys are {array.dtype} here, expected {leaf.dtype}")
        return jax.device_put(array, leaf.sharding)

    restored = Restored(step, jax.tree.map(place, abstract, state), progress)
    if "checksum" in record and record["checksum"] != str(checksum_with(restored.state, [step, progress])):
        raise CheckpointError(
            f"{folder / STATE} is damaged: its content is not what was saved (the checksum differs)"
        )
    return restored


def _named(tree: Any) -> dict[str, Any]:
    """Leaves by path, in the tree's order; random keys as their words."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            words = jax.random.key_data
            leaf = jax.eval_shape(words, leaf) if isinstance(leaf, jax.ShapeDtypeStruct) else words(leaf)
        found[jax.tree_util.keystr(path, simple=True, separator="/")] = leaf
    return found
