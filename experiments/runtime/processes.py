"""Several processes as one run: how they find each other, agree on things, and share work out.

All is built on JAX's own runtime: `jax.distributed` connects the processes, the collectives of
`jax.experimental.multihost_utils` carry what they tell each other. Each function here that says "in all
processes" must be called by every process, in the same order; with one process none of them communicates.
"""

import contextlib
import functools
import importlib.util
import itertools
import operator
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

HEARTBEAT_SECONDS = 30
"""After which a process that is silent counts as gone, and the others are ended."""
SHUTDOWN_SECONDS = 3600
"""For which a process that is done waits for the others, as while the first draws; gone ones are noticed."""
DISTRIBUTED = ("auto", "on", "off")


def surroundings_of_several(environment: os._Environ | dict[str, str] = os.environ) -> str | None:
    """Returns SLURM, Open MPI, Kubernetes or Cloud TPU if that started this process as one of several."""
    slurm = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_PROCID")
    if all(name in environment for name in slurm) and _number(environment.get("SLURM_NTASKS")) > 1:
        return "SLURM"
    if _number(environment.get("OMPI_COMM_WORLD_SIZE")) > 1:
        return "Open MPI"
    if "KUBERNETES_SERVICE_HOST" in environment and "JOB_COMPLETION_INDEX" in environment:
        return "Kubernetes"
    hosts = environment.get("TPU_PROCESS_ADDRESSES") or environment.get("TPU_WORKER_HOSTNAMES") or ""
    if "," in hosts or "MEGASCALE_COORDINATOR_ADDRESS" in environment or _is_tpu_machine():
        return "Cloud TPU"
    return None


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def _is_tpu_machine() -> bool:
    """A machine of a TPU slice says so by its devices; JAX asks the cloud for the rest."""
    wanted = os.environ.get("JAX_PLATFORMS", "tpu").split(",")
    if "tpu" not in wanted or importlib.util.find_spec("libtpu") is None:
        return False
    return any(Path("/dev").glob("accel[0-9]*")) or any(Path("/dev/vfio").glob("[0-9]*"))


def connect(
    distributed: str = "auto",
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
) -> None:
    """Connects this process with the others of its run, before anything else touches a device.

    What is not given is taken from the environment: `JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES` and
    `JAX_PROCESS_ID`, or what SLURM, Open MPI, Kubernetes and Cloud TPUs say, as `jax.distributed.initialize`
    reads it.

    Args:
        distributed: `on` always connects; `off` never does; `auto` does if an address is given, or if the
            surroundings say that there are several processes.
        coordinator_address: HOST:PORT of process 0.
        num_processes: how many there are.
        process_id: which this is, from 0.

    Raises:
        ValueError: what was given does not fit together, or the others were not found.
    """
    if distributed not in DISTRIBUTED:
        raise ValueError(f"distributed={distributed!r} is not one of {', '.join(DISTRIBUTED)}")
    address = coordinator_address or os.environ.get("JAX_COORDINATOR_ADDRESS") or None
    count = _given("num_processes", num_processes, "JAX_NUM_PROCESSES")
    index = _given("process_id", process_id, "JAX_PROCESS_ID")
    given = {"coordinator_address": address, "num_processes": count, "process_id": index}
    if distributed == "off":
        if coordinator_address or num_processes is not None or process_id is not None:
            raise ValueError("distributed=off leaves nothing to connect: give no address, number or id")
        return
    if count is not None and count < 1:
        raise ValueError(f"num_processes={count} must be at least 1")
    if index is not None and (index < 0 or (count is not None and index >= count)):
        raise ValueError(f"process_id={index} must be from 0 up to num_processes={count}")
    if address is not None and not (":" in address and address.rpartition(":")[2].isdigit()):
        raise ValueError(f"coordinator_address={address!r} must be HOST:PORT of process 0")
    around = surroundings_of_several()
    named = [name for name, value in given.items() if value is not None]
    if named and len(named) < len(given) and around is None:
        missing = ", ".join(name for name in given if name not in named)
        raise ValueError(f"{', '.join(named)} alone do not connect processes: {missing} must be given too")
    if not named and around is None and distributed == "auto":
        return
    try:
        jax.distributed.initialize(
            **given,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=SHUTDOWN_SECONDS,
        )
    except (RuntimeError, ValueError) as error:
        how = ", ".join(f"{name}={value}" for name, value in given.items()) if named else around or "nothing"
        raise ValueError(
            f"the processes of this run could not be connected (by {how}): {first_line(error)}; for a run of "
            "one process give --distributed=off"
        ) from error


def first_line(error: Exception) -> str:
    """What an error says first, or its type if it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _given(name: str, value: int | None, variable: str) -> int | None:
    text = os.environ.get(variable)
    if value is not None or not text:
        return value
    if not text.isdigit():
        raise ValueError(f"{variable}={text!r}, the environment's {name}, must be a number")
    return int(text)


def is_first() -> bool:
    """Whether this process is the one that writes what all have come to."""
    return jax.process_index() == 0


def gathered(values: Any) -> np.ndarray:
    """In all processes: the numbers of every one, of one shape and type, along a new first axis."""
    values = np.asarray(values)
    if jax.process_count() == 1:
        return values[None]
    raw = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)  # collectives would lose float64
    everyone = np.asarray(multihost_utils.process_allgather(raw)).reshape(jax.process_count(), -1)
    return np.stack([np.frombuffer(row.tobytes(), values.dtype).reshape(values.shape) for row in everyone])


def gathered_texts(text: str) -> list[str]:
    """In all processes: the text of every one."""
    if jax.process_count() == 1:
        return [text]
    raw = np.frombuffer(text.encode(), np.uint8)
    sizes = gathered(np.int64(len(raw)))
    rows = gathered(np.pad(raw, (0, int(sizes.max()) - len(raw))))
    return [row[:size].tobytes().decode() for row, size in zip(rows, sizes, strict=True)]


def total(tree: Any) -> Any:
    """In all processes: the sums over processes, in their order, of a tree of numpy arrays or numbers."""
    return jax.tree.map(lambda leaf: gathered(leaf).sum(axis=0), tree)


def share[T](items: Iterable[T]) -> Iterator[T]:
    """The items of this process: every item belongs to one process, however many there are."""
    return itertools.islice(items, jax.process_index(), None, jax.process_count())


def own_rows(batch: Any) -> Any:
    """Returns this process's rows of a batch that each process makes as a whole.

    Arrays of rank >= 1 have as many rows, a multiple of the processes.
    """
    index, count = jax.process_index(), jax.process_count()
    return jax.tree.map(lambda leaf: np.split(leaf, count)[index] if np.ndim(leaf) else leaf, batch)


def summed[T](measure: Callable[[T], Any], items: Sequence[T]) -> Any:
    """In all processes: the sum of a measurement, a tree, over items; one process measures each.

    There is at least one item, and they are the same in all processes.
    """
    parts = [measure(item) for item in share(items)]
    if not parts:  # fewer items than processes
        parts = [jax.tree.map(np.zeros_like, jax.device_get(measure(items[0])))]
    return total(functools.reduce(lambda a, b: jax.tree.map(operator.add, a, b), parts))


def in_all[T](work: Callable[[], T], error: type[Exception]) -> T:
    """In all processes: does something, or raises in all of them if it fails in one.

    A process that failed alone would leave the others waiting for it. `error` is raised, with a message,
    where another process has failed.
    """
    result, failure = None, None
    try:
        result = work()
    except Exception as raised:
        failure = raised
    messages = gathered_texts("" if failure is None else str(failure) or type(failure).__name__)
    if failure is not None:
        raise failure
    for index, message in enumerate(messages):
        if message:
            raise error(f"process {index} of {len(messages)}: {message}")
    return result  # pyrefly: ignore[bad-return]


def first_before_others[T](work: Callable[[], T], error: type[Exception]) -> T:
    """In all processes: what makes files if they are missing is done by the first, then by the others."""
    if jax.process_count() == 1:
        return work()
    made = in_all(lambda: work() if is_first() else None, error)
    found = in_all(lambda: None if is_first() else work(), error)
    return made if is_first() else found  # pyrefly: ignore[bad-return]


def check_alike(lines: Sequence[str], error: type[Exception]) -> None:
    """In all processes: raises `error` in all of them if they were not started alike.

    `lines` are what this one was started with, a setting a line; the message names those that differ.
    """
    texts = gathered_texts("\n".join(lines))
    first = texts[0].splitlines()
    differing = []
    for index, text in enumerate(texts):
        other = text.splitlines()
        missing = [line for line in first if line not in other]
        added = [line for line in other if line not in first]
        if missing or added:
            differing.append(
                f"\n  process {index} has {', '.join(added) or 'nothing'} where process 0 has "
                f"{', '.join(missing) or 'nothing'}"
            )
    if differing:
        raise error(f"the {len(texts)} processes were not started alike:{''.join(differing)}")


def own_mesh() -> Mesh:
    """A mesh of this process's devices with the one axis `data`: for what each process measures by itself."""
    return Mesh(np.asarray(jax.local_devices()), ("data",), axis_types=(jax.sharding.AxisType.Auto,))


def on_own_devices(tree: Any) -> Any:
    """In all processes: arrays, copied or split over all devices, copied to those of each process."""
    if jax.process_count() == 1:
        return tree
    here = NamedSharding(own_mesh(), PartitionSpec())

    def copies(leaf):
        if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
            return leaf
        if not leaf.is_fully_replicated:
            sharding = leaf.sharding
            assert isinstance(sharding, NamedSharding), sharding
            everywhere = NamedSharding(sharding.mesh, PartitionSpec())
            leaf = jax.jit(lambda x: x, out_shardings=everywhere)(leaf)
        parts = [shard.data for shard in leaf.addressable_shards]
        return jax.make_array_from_single_device_arrays(leaf.shape, here, parts)

    return jax.tree.map(copies, tree)


_LAST_WORDS = """
import sys
text = sys.argv[1]
if not sys.stdin.buffer.read(1):  # the end of a process that did not take its leave
    print(text, file=sys.stderr, flush=True)
"""


@contextlib.contextmanager
def last_words(workdir: Path, *, unless: tuple[type[Exception], ...] = ()) -> Generator[None]:
    """Prints what to do if this process ends before its work is done, unless by an error that says so itself.

    When one of several processes is gone, JAX's runtime aborts the others: no handler of Python's runs then.
    So the line is left with a small process that waits for this one's end. With one process there is none.
    """
    if jax.process_count() == 1:
        yield
        return
    text = (
        f"error: process {jax.process_index()} of {jax.process_count()} ended before the run did; the lines "
        "above say why (if one process of a run ends, JAX ends the others). To go on, start all of "
        "them again with the same command: the run continues from the last checkpoint in "
        f"{workdir / 'checkpoints'}"
    )
    waiting = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LAST_WORDS, text], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield
    except unless:
        waiting.communicate(b".")
        raise
    waiting.communicate(b".")  # after any other error the words are said when this process has ended
