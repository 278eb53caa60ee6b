"""Checkpoints of a run: saved in the background, whole or not at all, and checked bit by bit when read.

Orbax writes a checkpoint to a temporary directory and renames it when it is complete, so a run killed during
a save finds the one before. What Orbax does not give is a way on when a committed checkpoint has been damaged
since (a full disk, a partial copy, a flipped bit): here every checkpoint carries a checksum of its state, one
that cannot be restored exactly is reported by its path, and the one before it is used.
"""

import dataclasses
import functools
import gc
import json
import logging as stdlib_logging
import shutil
import warnings
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from absl import logging
from jaxtyping import Array, UInt32
from orbax.checkpoint import v1 as ocp

from experiments.runtime import processes


class CheckpointError(RuntimeError):
    """No checkpoint of a run could be restored although there are some."""


@dataclasses.dataclass(frozen=True)
class Restored:
    """A checkpoint read back.

    Attributes:
        step: number of updates behind it.
        state: the state, with the shardings that were asked for.
        progress: the small record saved with it (seconds of training and the like).
    """

    step: int
    state: Any
    progress: dict[str, float]


@jax.jit
def checksum(tree: Any) -> UInt32[Array, ""]:
    """Returns a number that changes when any bit of any array of the tree does, on any number of devices.

    The sum, modulo 2^32, of all 32-bit words, each times its own odd factor: a changed word always shows,
    since odd factors are invertible, and exchanged ones show through their factors. Integer sums do not
    depend on their order, so it may be computed where the arrays lie, split or not.
    """
    total = jnp.uint32(0)
    for index, leaf in enumerate(jax.tree.leaves(tree)):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        if leaf.dtype == jnp.bool_:
            leaf = leaf.astype(jnp.uint8)
        bits = jax.lax.bitcast_convert_type(leaf, jnp.dtype(f"uint{8 * min(leaf.dtype.itemsize, 4)}"))
        words = bits.astype(jnp.uint32).ravel()
        place = jnp.arange(words.size, dtype=jnp.uint32) * 2 + 1
        total += jnp.uint32(2 * index + 1) * jnp.sum(words * place, dtype=jnp.uint32)
    return total


def checksum_with(state: Any, progress: Any) -> int:
    """The checksum of a state and of a small record that JSON can hold."""
    return zlib.crc32(json.dumps(progress, sort_keys=True).encode(), int(checksum(state)))


class Checkpoints:
    """The checkpoints of one run, under one directory, one numbered folder a step."""

    def __init__(self, directory: Path, *, every: int, keep: int):
        """Takes the directory; the first save makes it, and clears it of what an interrupted save has left.

        Only one process, or one group of cooperating ones, may use it at a time. A save is due `every` so
        many steps; the last `keep` are kept.
        """
        self.directory, self._every, self._keep = directory.absolute(), every, keep

    @functools.cached_property
    def _checkpointer(self) -> Any:
        # Opened late: it reads all metadata there are and stumbles over damage that `restore` must see first.
        training: Any = ocp.training  # the policies' annotations do not match the protocol they implement
        return training.Checkpointer(
            str(self.directory),
            save_decision_policy=training.save_decision_policies.FixedIntervalPolicy(self._every),
            preservation_policy=training.preservation_policies.LatestN(self._keep),
            cleanup_tmp_directories=True,
        )

    def latest_path(self) -> Path | None:
        """The last complete checkpoint, or None; waits for a save that is under way."""
        if "_checkpointer" in vars(self):
            self._checkpointer.wait()
        steps = self.steps()
        return self.directory / str(steps[0]) if steps else None

    def due(self, step: int, *, force: bool = False) -> bool:
        """Whether the interval (or `force`) asks for a checkpoint at this step and there is none yet."""
        latest = self._checkpointer.latest
        return (latest is None or latest.step != step) and (force or self._checkpointer.should_save(step))

    def save(self, step: int, state: Any, progress: dict[str, float]) -> None:
        """Saves in the background, after a save that is under way.

        The state may be donated as soon as this returns. `progress` is a small record that `restore` gives
        back.
        """
        record = {"progress": progress, "checksum": checksum_with(state, progress)}
        self._checkpointer.save_async(step, state, force=True, custom_metadata=record)

    def restore(self, abstract: Any) -> Restored | None:
        """Reads the last checkpoint that is intact; damaged ones are reported and moved out of the way.

        `abstract` is the state as `jax.ShapeDtypeStruct`s with the shardings wanted, on any number of
        devices. Returns None if there are no checkpoints.

        Raises:
            CheckpointError: there are checkpoints and none could be restored; all stay where they are.
        """
        damaged = {}
        steps = self.steps()
        processes.check_alike([f"the checkpoints {steps} in {self.directory}"], CheckpointError)
        for step in steps:
            path = self.directory / str(step)
            restored, reason = self._read(path, abstract)
            if processes.gathered(restored is None).any():
                damaged[path] = reason or "another process could not read it"
                logging.warning("checkpoint %s is damaged and will not be used: %s", path, damaged[path])
                continue
            if damaged:
                logging.warning("using the checkpoint before: %s", path)
                self._put_aside(damaged)
            return restored
        if damaged:
            reasons = "".join(f"\n  {path}: {reason}" for path, reason in damaged.items())
            raise CheckpointError(
                f"none of the {len(damaged)} checkpoints under {self.directory} can be restored; "
                f"choose another workdir or remove them to begin again:{reasons}"
            )
        return None

    def steps(self) -> list[int]:
        """Steps of the committed checkpoints, the last first."""
        if not self.directory.exists():
            return []
        names = (entry.name for entry in self.directory.iterdir() if entry.is_dir())
        return sorted((int(name) for name in names if name.isdigit()), reverse=True)

    def read(self, step: int, abstract: Any) -> Restored:
        """One checkpoint, for looking at; nothing is moved.

        Raises:
            CheckpointError: there is none of that step, or it is damaged.
        """
        path = self.directory / str(step)
        if step not in self.steps():
            there = ", ".join(map(str, self.steps())) or "none"
            raise CheckpointError(f"there is no checkpoint {path}; steps there are: {there}")
        restored, reason = self._read(path, abstract)
        if restored is None:
            raise CheckpointError(f"checkpoint {path} cannot be read: {reason}")
        return restored

    def close(self) -> None:
        """Waits for a save that is under way and releases the directory."""
        if "_checkpointer" in vars(self):
            self._checkpointer.close()

    def _read(self, path: Path, abstract: Any) -> tuple[Restored | None, str]:
        """What a checkpoint holds, or None and why it cannot be read."""
        logger = stdlib_logging.getLogger("asyncio")
        level = logger.level
        logger.setLevel(stdlib_logging.CRITICAL)
        try:
            try:
                state = ocp.load(str(path), abstract)
                record: Any = ocp.metadata(str(path)).custom_metadata
                if not isinstance(record, dict) or not {"checksum", "progress"} <= set(record):
                    raise CheckpointError("its record of progress and checksum is missing")
                if checksum_with(state, record["progress"]) != record["checksum"]:
                    raise CheckpointError("its content is not what was saved (the checksum differs)")
                return Restored(int(path.name), state, dict(record["progress"])), ""
            except Exception as error:  # what a torn file raises depends on which one it is
                reason = processes.first_line(error)[:300]
            # Orbax reads arrays concurrently; when one fails the others' errors, pages of them, are logged by
            # asyncio when the garbage collector finds them: it does so here, where the log is off.
            with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
                gc.collect()
            return None, reason
        finally:
            logger.setLevel(level)

    def _put_aside(self, damaged: dict[Path, str]) -> None:
        """Moves damaged checkpoints out, so that the run can save these steps again."""
        if processes.is_first():
            aside = self.directory.with_name(f"{self.directory.name}_damaged")
            for path in damaged:
                target = aside / path.name
                shutil.rmtree(target, ignore_errors=True)
                aside.mkdir(exist_ok=True)
                path.rename(target)
                logging.warning("moved %s to %s", path, target)
