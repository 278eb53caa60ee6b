"""Runs of several processes: connecting them, exchanging values, and dividing work.

Everything is built on JAX's runtime: `jax.distributed` connects the processes, and the collectives of
`jax.experimental.multihost_utils` exchange data. Functions documented as collective must be called by every
process, in the same order; with one process none of them communicates.
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
from typing import Any, Literal, get_args

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

HEARTBEAT_SECONDS = 30
"""Time without a heartbeat after which a process is considered dead, and the others are terminated."""
SHUTDOWN_SECONDS = 3600
"""Time that a finished process waits for the others (the first one draws figures); dead ones are noticed."""
Distributed = Literal["auto", "on", "off"]
"""Whether to connect processes: see `connect`."""
DISTRIBUTED: tuple[Distributed, ...] = get_args(Distributed)
Launcher = Literal["SLURM", "Open MPI", "Kubernetes", "Cloud TPU"]


def surroundings_of_several(environment: os._Environ | dict[str, str] = os.environ) -> Launcher | None:
    """Returns the launcher that started this process as one of several, or None."""
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
    """Returns whether this machine has TPU devices; JAX queries the cloud for the other hosts."""
    wanted = os.environ.get("JAX_PLATFORMS", "tpu").split(",")
    if "tpu" not in wanted or importlib.util.find_spec("libtpu") is None:
        return False
    return any(Path("/dev").glob("accel[0-9]*")) or any(Path("/dev/vfio").glob("[0-9]*"))


def connect(
    distributed: Distributed = "auto",
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
) -> None:
    """Connects this process with the others of its run; call it before anything else uses a device.

    Missing arguments are taken from the environment: `JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES` and
    `JAX_PROCESS_ID`, or the variables of SLURM, Open MPI, Kubernetes and Cloud TPUs that
    `jax.distributed.initialize` reads.

    Args:
        distributed: `on` always connects, `off` never does, and `auto` connects if an address is given or a
            launcher has started several processes.
        coordinator_address: HOST:PORT of process 0.
        num_processes: number of processes.
        process_id: index of this process, from 0.

    Raises:
        ValueError: if the arguments are inconsistent, or the other processes were not found.
    """
    if distributed not in DISTRIBUTED:
        raise ValueError(
            f"distributed: got {distributed!r}, expected one of {', '.join(map(repr, DISTRIBUTED))}"
        )
    address = coordinator_address or os.environ.get("JAX_COORDINATOR_ADDRESS") or None
    count = _given("num_processes", num_processes, "JAX_NUM_PROCESSES")
    index = _given("process_id", process_id, "JAX_PROCESS_ID")
    given = {"coordinator_address": address, "num_processes": count, "process_id": index}
    if distributed == "off":
        if coordinator_address or num_processes is not None or process_id is not None:
            raise ValueError("distributed: got 'off', expected no address, number or id of processes with it")
        return
    if count is not None and count < 1:
        raise ValueError(f"num_processes: got {count}, expected at least 1")
    if index is not None and (index < 0 or (count is not None and index >= count)):
        raise ValueError(f"process_id: got {index}, expected 0 <= process_id < num_processes={count}")
    if address is not None and not (":" in address and address.rpartition(":")[2].isdigit()):
        raise ValueError(f"coordinator_address: got {address!r}, expected HOST:PORT of process 0")
    around = surroundings_of_several()
    named = [name for name, value in given.items() if value is not None]
    if named and len(named) < len(given) and around is None:
        missing = ", ".join(name for name in given if name not in named)
        raise ValueError(f"{missing}: got none, expected a value, since {', '.join(named)} is given")
    if not named and around is None and distributed == "auto":
        return
    try:
        jax.distributed.initialize(
            **given,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=SHUTDOWN_SECONDS,
        )
    except (RuntimeError, ValueError) as error:
        how = (
            ", ".join(f"{name}={value}" for name, value in given.items()) if named else around or "no address"
        )
        raise ValueError(
            f"could not connect the processes of this run (using {how}): {first_line(error)}; for a run of "
            "one process use --distributed=off"
        ) from error


def first_line(error: Exception) -> str:
    """Returns the first line of an error, at most 300 characters of it, or the type of one without text."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]


def _given(name: str, value: int | None, variable: str) -> int | None:
    text = os.environ.get(variable)
    if value is not None or not text:
        return value
    if not text.isdigit():
        raise ValueError(f"{variable}: got {text!r}, expected an integer ({name}, from the environment)")
    return int(text)


def is_first() -> bool:
    """Returns whether this is process 0, which writes the files of the run."""
    return jax.process_index() == 0


def gathered(values: Any) -> np.ndarray:
    """Collective: stacks the values of all processes, of equal shape and dtype, along a new first axis."""
    values = np.asarray(values)
    if jax.process_count() == 1:
        return values[None]
    raw = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)  # collectives would lose float64
    everyone = np.asarray(multihost_utils.process_allgather(raw)).reshape(jax.process_count(), -1)
    return np.stack([np.frombuffer(row.tobytes(), values.dtype).reshape(values.shape) for row in everyone])


def gathered_texts(text: str) -> list[str]:
    """Collective: returns the strings of all processes."""
    if jax.process_count() == 1:
        return [text]
    raw = np.frombuffer(text.encode(), np.uint8)
    sizes = gathered(np.int64(len(raw)))
    rows = gathered(np.pad(raw, (0, int(sizes.max()) - len(raw))))
    return [row[:size].tobytes().decode() for row, size in zip(rows, sizes, strict=True)]


def total(tree: Any) -> Any:
    """Collective: sums a tree of numpy arrays or numbers over the processes, in process order."""
    return jax.tree.map(lambda leaf: gathered(leaf).sum(axis=0), tree)


def share[T](items: Iterable[T]) -> Iterator[T]:
    """Returns this process's share of the items; every item belongs to exactly one process."""
    return itertools.islice(items, jax.process_index(), None, jax.process_count())


def own_rows(batch: Any) -> Any:
    """Returns this process's rows of a batch of which each process has all rows.

    The number of rows of every array of rank >= 1 must be a multiple of the number of processes.
    """
    index, count = jax.process_index(), jax.process_count()
    return jax.tree.map(lambda leaf: np.split(leaf, count)[index] if np.ndim(leaf) else leaf, batch)


def summed[T](measure: Callable[[T], Any], items: Sequence[T]) -> Any:
    """Collective: sums a measurement (a tree) over items; each item is measured by one process.

    The items must be the same in all processes, and there must be at least one.
    """
    parts = [measure(item) for item in share(items)]
    if not parts:  # fewer items than processes
        parts = [jax.tree.map(np.zeros_like, jax.device_get(measure(items[0])))]
    return total(functools.reduce(lambda a, b: jax.tree.map(operator.add, a, b), parts))


def in_all[T](work: Callable[[], T], error: type[Exception]) -> T:
    """Collective: calls `work`, and raises in all processes if it fails in one.

    Otherwise the other processes would wait for the failed one. They raise `error` with its message.
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
    """Collective: calls `work` in the first process, then in the others, which find the files it has made."""
    if jax.process_count() == 1:
        return work()
    made = in_all(lambda: work() if is_first() else None, error)
    found = in_all(lambda: None if is_first() else work(), error)
    return made if is_first() else found  # pyrefly: ignore[bad-return]


def check_alike(lines: Sequence[str], error: type[Exception]) -> None:
    """Collective: raises `error` in all processes if they were started with different settings.

    `lines` are the settings of this process, one per line; the message lists those that differ.
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
                f"\n  process {index}: got {', '.join(added) or 'nothing'}, expected "
                f"{', '.join(missing) or 'nothing'} as in process 0"
            )
    if differing:
        raise error(f"the {len(texts)} processes were started with different settings:{''.join(differing)}")


def own_mesh() -> Mesh:
    """Returns a mesh of this process's devices with the single axis `data`, for local measurements."""
    return Mesh(np.asarray(jax.local_devices()), ("data",), axis_types=(jax.sharding.AxisType.Auto,))


def on_own_devices(tree: Any) -> Any:
    """Collective: replicates arrays, which may be split over all devices, on each process's own devices."""
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
if not sys.stdin.buffer.read(1):  # the process ended without writing a byte
    print(text, file=sys.stderr, flush=True)
"""


@contextlib.contextmanager
def last_words(workdir: Path, *, unless: tuple[type[Exception], ...] = ()) -> Generator[None]:
    """Prints how to continue if this process dies early, except after the errors in `unless`.

    When one of several processes dies, JAX's runtime aborts the others without running any Python handler.
    Therefore a small helper process waits for this one to end and prints the message. A run of one process
    needs none.
    """
    if jax.process_count() == 1:
        yield
        return
    text = (
        f"error: process {jax.process_index()} of {jax.process_count()} ended early; see the messages above "
        "(when one process ends, JAX terminates the others). To continue from the last checkpoint in "
        f"{workdir / 'checkpoints'}, start all processes again with the same command"
    )
    waiting = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LAST_WORDS, text], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield
    except unless:
        waiting.communicate(b".")
        raise
    waiting.communicate(b".")  # after any other error the helper prints its message when this process ends
