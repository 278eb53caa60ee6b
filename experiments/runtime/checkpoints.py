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
from collections.abc import Mapping
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


BLOCK = 1 << 17
"""Words that are summed at once on the host: few, so that the steps of mixing find them in the cache."""

MIXED, PLAIN = "mixed_checksum", "checksum"
"""Names under which records have `checksum`, and that of files from before words were mixed."""


def checksum(tree: Any, *, mix: bool = True) -> int:
    """Returns a 32-bit checksum of all arrays of a tree, independent of how they are sharded.

    The checksum is the sum modulo 2^32 of all 32-bit words, each mixed with its place. Mixing is invertible,
    so a single changed word is always detected. It leaves no relation between the words that a change could
    keep, so any other change is missed once in about 2^32 times. Integer sums do not depend on their order,
    so arrays on accelerators or of other processes stay where they are; those on the host are summed by
    NumPy, which has nothing to compile.

    Args:
        tree: the arrays.
        mix: False multiplies each word by an odd factor instead. Files have such sums from before words were
            mixed; an even number of changed signs, for example, cancels in them.
    """
    leaves = [
        jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        for leaf in jax.tree.leaves(tree)
    ]
    if all(_is_on_host(leaf) for leaf in leaves):
        return _checksum_on_host([np.asarray(leaf) for leaf in leaves], mix)
    return int(_checksum_on_devices(leaves, mix))


def _is_on_host(leaf: Any) -> bool:
    if not isinstance(leaf, jax.Array):
        return True
    return leaf.is_fully_addressable and {device.platform for device in leaf.devices()} == {"cpu"}


def _mixed(words: Any, place: Any, mix: bool) -> Any:
    """Returns what is summed as a new array, of NumPy or JAX; takes up to 32 bits each, and uint32 places."""
    if not mix:
        return words * (2 * place + 1)
    # Places are added, since the product with a word that ends in zero bits is the same at many places. The
    # rest is the hash "lowbias32" of https://github.com/skeeto/hash-prospector.
    mixed = place * np.uint32(0x9E3779B9)
    mixed += words
    mixed ^= mixed >> 16
    mixed *= np.uint32(0x7FEB352D)
    mixed ^= mixed >> 15
    mixed *= np.uint32(0x846CA68B)
    mixed ^= mixed >> 16
    return mixed


def _checksum_on_host(leaves: list[np.ndarray], mix: bool) -> int:
    total, places = 0, np.arange(BLOCK, dtype=np.uint32)
    with np.errstate(over="ignore"):  # sums are modulo 2^32
        for index, leaf in enumerate(leaves):
            words = leaf.ravel().view(f"uint{8 * min(leaf.dtype.itemsize, 4)}")
            of_leaf = 0
            for start in range(0, words.size, BLOCK):
                block = words[start : start + BLOCK]
                place = places[: block.size] + np.uint32(start & 0xFFFFFFFF)
                of_leaf += np.sum(_mixed(block, place, mix), dtype=np.uint32)
            total += (2 * index + 1) * of_leaf
    return int(total)


@functools.partial(jax.jit, static_argnames="mix")
def _checksum_on_devices(leaves: list[Array], mix: bool) -> UInt32[Array, ""]:
    total = jnp.uint32(0)
    for index, leaf in enumerate(leaves):
        if leaf.dtype == jnp.bool_:
            leaf = leaf.astype(jnp.uint8)
        bits = jax.lax.bitcast_convert_type(leaf, jnp.dtype(f"uint{8 * min(leaf.dtype.itemsize, 4)}"))
        mixed = _mixed(bits.ravel(), jnp.arange(bits.size, dtype=jnp.uint32), mix)
        total += jnp.uint32(2 * index + 1) * jnp.sum(mixed, dtype=jnp.uint32)
    return total


def checksum_with(state: Any, progress: Any, *, mix: bool = True) -> int:
    """Returns the checksum of a state together with a small JSON-serializable record."""
    return zlib.crc32(json.dumps(progress, sort_keys=True).encode(), checksum(state, mix=mix))


def is_intact(record: Mapping[str, Any], state: Any, progress: Any) -> bool:
    """Returns whether the checksum in a record is that of `checksum_with`; True without one."""
    for name in (MIXED, PLAIN):
        if name in record:
            return str(record[name]) == str(checksum_with(state, progress, mix=name == MIXED))
    return True


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
        record = {"progress": progress, MIXED: checksum_with(state, progress)}
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
                if (
                    not isinstance(record, dict)
                    or "progress" not in record
                    or not {MIXED, PLAIN} & set(record)
                ):
                    raise CheckpointError("the record of progress and checksum is missing")
                if not is_intact(record, state, record["progress"]):
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
