"""Checkpoints of a run: saved atomically in the background, and verified bit by bit when read.

Orbax writes a checkpoint to a temporary directory and renames it when it is complete, so a run killed during
a save still finds the previous checkpoint. Orbax does not recover when a committed checkpoint has been
damaged since (a full disk, a partial copy, a flipped bit). Here every checkpoint carries a checksum of its
state; one that cannot be restored exactly is reported by its path, and the previous one is used.
"""

import dataclasses
import functools
import gc
import json
import logging as stdlib_logging
import shutil
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jaxtyping import Array, UInt32
from orbax.checkpoint import v1 as ocp

from experiments.runtime import processes


class CheckpointError(RuntimeError):
    """A checkpoint is missing, damaged, or does not fit the expected state."""


@dataclasses.dataclass(frozen=True)
class Restored:
    """A restored checkpoint.

    Attributes:
        step: number of updates made.
        state: the state, with the requested shardings.
        progress: the small record saved with it (seconds of training, for example).
    """

    step: int
    state: Any
    progress: dict[str, float]


BLOCK = 1 << 20
"""Words that are summed at once on the host."""


def checksum(tree: Any) -> int:
    """Returns a 32-bit checksum of all arrays of a tree, independent of how they are sharded.

    The checksum is the sum modulo 2^32 of all 32-bit words, each multiplied by its own odd factor. A single
    changed word is always detected, because odd factors are invertible; swapped words are detected through
    their different factors. Integer sums do not depend on their order, so arrays on accelerators or of other
    processes stay where they are; those on the host are summed by NumPy, which has nothing to compile.
    """
    leaves = [
        jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        for leaf in jax.tree.leaves(tree)
    ]
    if all(_is_on_host(leaf) for leaf in leaves):
        return _checksum_on_host([np.asarray(leaf) for leaf in leaves])
    return int(_checksum_on_devices(leaves))


def _is_on_host(leaf: Any) -> bool:
    if not isinstance(leaf, jax.Array):
        return True
    return leaf.is_fully_addressable and {device.platform for device in leaf.devices()} == {"cpu"}


def _checksum_on_host(leaves: list[np.ndarray]) -> int:
    total, places = 0, np.arange(BLOCK, dtype=np.uint32) * 2 + 1
    with np.errstate(over="ignore"):  # sums are modulo 2^32
        for index, leaf in enumerate(leaves):
            words = leaf.ravel().view(f"uint{8 * min(leaf.dtype.itemsize, 4)}")
            of_leaf = 0
            for start in range(0, words.size, BLOCK):
                block = words[start : start + BLOCK].astype(np.uint32)
                place = places[: block.size] + (2 * start & 0xFFFFFFFF)
                of_leaf += np.sum(block * place, dtype=np.uint32)
            total += (2 * index + 1) * of_leaf
    return int(total)


@jax.jit
def _checksum_on_devices(leaves: list[Array]) -> UInt32[Array, ""]:
    total = jnp.uint32(0)
    for index, leaf in enumerate(leaves):
        if leaf.dtype == jnp.bool_:
            leaf = leaf.astype(jnp.uint8)
        bits = jax.lax.bitcast_convert_type(leaf, jnp.dtype(f"uint{8 * min(leaf.dtype.itemsize, 4)}"))
        words = bits.astype(jnp.uint32).ravel()
        place = jnp.arange(words.size, dtype=jnp.uint32) * 2 + 1
        total += jnp.uint32(2 * index + 1) * jnp.sum(words * place, dtype=jnp.uint32)
    return total


def checksum_with(state: Any, progress: Any) -> int:
    """Returns the checksum of a state together with a small JSON-serializable record."""
    return zlib.crc32(json.dumps(progress, sort_keys=True).encode(), checksum(state))


class Checkpoints:
    """The checkpoints of one run: a directory with one numbered folder per saved step."""

    def __init__(self, directory: Path, *, every: int, keep: int):
        """Sets the directory; the first save creates it and removes leftovers of an interrupted save.

        Only one process, or one group of cooperating processes, may use the directory at a time.

        Args:
            directory: parent of the numbered folders.
            every: steps between saves.
            keep: number of most recent checkpoints to keep.
        """
        self.directory, self._every, self._keep = directory.absolute(), every, keep

    @functools.cached_property
    def _checkpointer(self) -> Any:
        # Opened lazily: it reads all metadata and fails on damage that `restore` must handle first.
        training: Any = ocp.training  # the policies' annotations do not match the protocol they implement
        return training.Checkpointer(
            str(self.directory),
            save_decision_policy=training.save_decision_policies.FixedIntervalPolicy(self._every),
            preservation_policy=training.preservation_policies.LatestN(self._keep),
            cleanup_tmp_directories=True,
        )

    def latest_path(self) -> Path | None:
        """Returns the path of the last complete checkpoint, or None; waits for a save in progress."""
        if "_checkpointer" in vars(self):
            self._checkpointer.wait()
        steps = self.steps()
        return self.directory / str(steps[0]) if steps else None

    def due(self, step: int, *, force: bool = False) -> bool:
        """Returns whether `step` needs a checkpoint (by the interval or `force`) and has none yet."""
        latest = self._checkpointer.latest
        return (latest is None or latest.step != step) and (force or self._checkpointer.should_save(step))

    def save(self, step: int, state: Any, progress: dict[str, float]) -> None:
        """Saves in the background, after any save in progress has finished.

        The state may be donated as soon as this returns. `progress` is a small record that `restore` returns.
        """
        record = {"progress": progress, "checksum": checksum_with(state, progress)}
        self._checkpointer.save_async(step, state, force=True, custom_metadata=record)

    def restore(self, abstract: Any) -> Restored | None:
        """Restores the last intact checkpoint; damaged ones are logged and moved aside.

        `abstract` is the state as `jax.ShapeDtypeStruct`s with the desired shardings, on any number of
        devices. Returns None if there are no checkpoints.

        Raises:
            CheckpointError: if checkpoints exist and none could be restored; none of them is moved then.
        """
        damaged = {}
        steps = self.steps()
        processes.check_alike([f"checkpoints {steps} in {self.directory}"], CheckpointError)
        for step in steps:
            path = self.directory / str(step)
            restored, reason = self._read(path, abstract)
            if processes.gathered(restored is None).any():
                damaged[path] = reason or "another process could not read it"
                logging.warning("checkpoint %s is damaged and is not used: %s", path, damaged[path])
                continue
            if damaged:
                logging.warning("using the previous checkpoint: %s", path)
                self._put_aside(damaged)
            return restored
        if damaged:
            reasons = "".join(f"\n  {path}: {reason}" for path, reason in damaged.items())
            raise CheckpointError(
                f"{self.directory}: none of the {len(damaged)} checkpoints can be restored; "
                f"choose another workdir, or remove them to start over:{reasons}"
            )
        return None

    def steps(self) -> list[int]:
        """Returns the steps of the committed checkpoints, latest first."""
        if not self.directory.exists():
            return []
        names = (entry.name for entry in self.directory.iterdir() if entry.is_dir())
        return sorted((int(name) for name in names if name.isdigit()), reverse=True)

    def read(self, step: int, abstract: Any) -> Restored:
        """Reads the checkpoint of one step; unlike `restore`, moves nothing.

        Raises:
            CheckpointError: if that step has no checkpoint, or a damaged one.
        """
        path = self.directory / str(step)
        if step not in self.steps():
            available = ", ".join(map(str, self.steps())) or "none"
            raise CheckpointError(f"{path}: no such checkpoint; available steps: {available}")
        restored, reason = self._read(path, abstract)
        if restored is None:
            raise CheckpointError(f"{path}: the checkpoint cannot be read: {reason}")
        return restored

    def arrays(self, step: int) -> dict[str, Array]:
        """Returns the arrays of a checkpoint of any structure by their names, such as "params/dense/kernel".

        Their content is not verified, since the checksum depends on the order of the original tree.

        Raises:
            CheckpointError: the checkpoint cannot be read.
        """
        path, where = (
            str(self.directory / str(step)),
            jax.sharding.SingleDeviceSharding(jax.local_devices()[0]),
        )
        try:
            tree = jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
                ocp.metadata(path).metadata,
            )
            leaves = jax.tree_util.tree_leaves_with_path(ocp.load(path, tree))
        except Exception as error:  # as in `_read`
            raise CheckpointError(f"{path}: cannot be read: {processes.first_line(error)}") from error
        return {jax.tree_util.keystr(name, simple=True, separator="/"): leaf for name, leaf in leaves}

    def close(self) -> None:
        """Waits for a save in progress and releases the directory."""
        if "_checkpointer" in vars(self):
            self._checkpointer.close()

    def _read(self, path: Path, abstract: Any) -> tuple[Restored | None, str]:
        """Returns a checkpoint's content and "", or None and the reason why it cannot be read."""
        logger = stdlib_logging.getLogger("asyncio")
        level = logger.level
        logger.setLevel(stdlib_logging.CRITICAL)
        try:
            try:
                state = ocp.load(str(path), abstract)
                record: Any = ocp.metadata(str(path)).custom_metadata
                if not isinstance(record, dict) or not {"checksum", "progress"} <= set(record):
                    raise CheckpointError("the record of progress and checksum is missing")
                if checksum_with(state, record["progress"]) != record["checksum"]:
                    raise CheckpointError("the content differs from what was saved (checksum mismatch)")
                return Restored(int(path.name), state, dict(record["progress"])), ""
            except Exception as error:  # a truncated file raises different errors, depending on which one
                reason = processes.first_line(error)
            # Orbax reads arrays concurrently. When one fails, asyncio logs pages of errors of the others once
            # they are garbage-collected; collecting them here, with the log off, hides them.
            gc.collect()
            return None, reason
        finally:
            logger.setLevel(level)

    def _put_aside(self, damaged: dict[Path, str]) -> None:
        """Moves damaged checkpoints to a sibling folder, so that the run can save these steps again."""
        if processes.is_first():
            aside = self.directory.with_name(f"{self.directory.name}_damaged")
            for path in damaged:
                target = aside / path.name
                shutil.rmtree(target, ignore_errors=True)
                aside.mkdir(exist_ok=True)
                path.rename(target)
                logging.warning("moved %s to %s", path, target)
