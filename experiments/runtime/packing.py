"""Released runs: folders small enough to commit, with a run's config, metrics, and last state in one file.

    pack(workdir, abstract, folder)      # config.json, metrics.jsonl, summary.json and state.safetensors
    unpack(folder, abstract, workdir)    # a workdir in which the run's command continues
    read_state(folder, abstract)         # the state alone

The state is an ordinary safetensors file with one array per leaf, named by the leaf's path. Random keys are
stored as their integer words. The metadata contain the step, the progress, and a checksum of these and the
arrays, because the format itself has none; older files without a checksum are read unverified.
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

from experiments.runtime.checkpoints import (
    MIXED,
    PLAIN,
    CheckpointError,
    Checkpoints,
    Restored,
    checksum_with,
    is_intact,
)
from experiments.runtime.workdir import WorkdirError, read_json, write_json
from logic_zoo.writing import whole

STATE = "state.safetensors"
_RECORDS = ("config.json", "metrics.jsonl", "summary.json")


def pack(workdir: Path, abstract: Any, folder: Path, *, step: int | None = None) -> Path:
    """Packs a run into a folder, replacing a packed run in it; returns the path of the state file.

    `abstract` is the state as `jax.ShapeDtypeStruct`s with shardings. The state is that of the last intact
    checkpoint, or of the checkpoint at `step`.

    Raises:
        CheckpointError: if there is no checkpoint, or none is intact.
        WorkdirError: if the folder contains other files.
    """
    checkpoints = Checkpoints(workdir / "checkpoints", every=1, keep=2)
    restored = checkpoints.restore(abstract) if step is None else checkpoints.read(step, abstract)
    if restored is None:
        raise CheckpointError(f"{checkpoints.directory}: got no checkpoint, expected at least one")
    there = {path.name for path in folder.glob("*")} - {STATE, *_RECORDS}
    # Hidden files are ours (an interrupted write of a state) or belong to nobody.
    endings = (".png", ".gif", ".mp4", ".md")
    if others := sorted(name for name in there if name[0] != "." and not name.endswith(endings)):
        raise WorkdirError(f"{folder}: got {others[0]!r}, expected a packed run or an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    # First, so that a folder with a state has its records; one from a packing that was killed is refused.
    (folder / STATE).unlink(missing_ok=True)
    for name in _RECORDS:
        (folder / name).unlink(missing_ok=True)
        if (workdir / name).exists():
            shutil.copyfile(workdir / name, folder / name)
    write_state(folder / STATE, restored)
    return folder / STATE


def unpack(folder: Path, abstract: Any, workdir: Path) -> Restored:
    """Unpacks a packed run into a new or empty workdir, where the run's command continues it.

    Raises:
        WorkdirError: if the workdir is not empty, or the folder's config is damaged.
        CheckpointError: if the folder's state is missing, damaged, or does not match `abstract`.
    """
    if workdir.exists() and any(workdir.iterdir()):
        raise WorkdirError(f"{workdir}: the workdir is not empty; choose another")
    restored, config = read_state(folder, abstract), read_json(folder / "config.json")
    workdir.mkdir(parents=True, exist_ok=True)
    # The config last: a workdir without one is rejected, so a half-made workdir is not mistaken for a run.
    checkpoints = Checkpoints(workdir / "checkpoints", every=1, keep=2)
    checkpoints.save(restored.step, restored.state, restored.progress)
    checkpoints.close()
    if (folder / "metrics.jsonl").exists():
        shutil.copyfile(folder / "metrics.jsonl", workdir / "metrics.jsonl")
    write_json(workdir / "config.json", config)
    return restored


def write_state(path: Path, restored: Restored) -> None:
    """Writes a state with its step and progress as one safetensors file, atomically."""
    arrays = {name: np.array(jax.device_get(leaf), order="C") for name, leaf in named(restored.state).items()}
    record = {"step": str(restored.step), "progress": json.dumps(restored.progress)}
    record[MIXED] = str(checksum_with(restored.state, [restored.step, restored.progress]))
    with whole(path) as temporary:
        save_file(arrays, temporary, record)
        temporary.chmod(0o644)  # the library creates files that only their owner can read


def read_state(folder: Path, abstract: Any) -> Restored:
    """Reads the state of a packed run, with the shardings of `abstract`.

    Raises:
        CheckpointError: if the file is missing or damaged, or its arrays do not match `abstract`.
    """
    arrays, record = read_arrays(folder)
    try:
        step, progress = int(record["step"]), dict(json.loads(record["progress"]))
        if strange := set(record) - {"step", "progress", MIXED, PLAIN}:
            raise ValueError(f"unexpected metadata {strange.pop()!r}")
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{folder / STATE}: damaged, or not a packed run's: {error!r}") from error
    wanted = named(abstract)
    if wrong := sorted(set(wanted) ^ set(arrays)):
        side = "an unexpected" if wrong[0] in arrays else "no"
        raise CheckpointError(
            f"{folder / STATE}: does not match the expected state: it has {side} {wrong[0]}"
        )
    for name, leaf in wanted.items():
        array = arrays[name]
        if array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise CheckpointError(
                f"{folder / STATE}: {name}: got {array.dtype}{list(array.shape)}, expected "
                f"{leaf.dtype}{list(leaf.shape)}"
            )
    state = jax.tree.unflatten(jax.tree.structure(abstract), [arrays[name] for name in wanted])

    def place(leaf, array):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            array = jax.random.wrap_key_data(array)
            if array.dtype != leaf.dtype:
                raise CheckpointError(
                    f"{folder / STATE}: got random keys of {array.dtype}, expected {leaf.dtype}"
                )
        return jax.device_put(array, leaf.sharding)

    restored = Restored(step, jax.tree.map(place, abstract, state), progress)
    if not is_intact(record, restored.state, [step, progress]):
        raise CheckpointError(
            f"{folder / STATE}: damaged: the content differs from what was saved (checksum mismatch)"
        )
    return restored


def read_arrays(folder: Path) -> tuple[dict[str, np.ndarray], Mapping[str, str]]:
    """Returns the arrays of a packed run by name, unverified, and the file's metadata.

    Raises:
        CheckpointError: if the file is missing, or damaged in its structure.
    """
    try:
        with safe_open(folder / STATE, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder / STATE}: cannot be read: {error}") from error


def named(tree: Any) -> dict[str, Any]:
    """Returns the leaves by path, in the tree's order, with random keys as their integer words."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            words = jax.random.key_data
            leaf = jax.eval_shape(words, leaf) if isinstance(leaf, jax.ShapeDtypeStruct) else words(leaf)
        found[jax.tree_util.keystr(path, simple=True, separator="/")] = leaf
    return found
