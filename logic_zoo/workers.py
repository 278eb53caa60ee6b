"""Long jobs that fill a folder: one at a time there, and on several processes, which end with the first."""

import concurrent.futures
import contextlib
import fcntl
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any


def cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Locks a folder against other processes; the lock ends with this process, even if it is killed.

    Raises:
        RuntimeError: another process has it.
    """
    with open(folder / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RuntimeError(f"{folder}: another process is writing to this folder") from error
        yield


@contextlib.contextmanager
def pool(
    processes: int, begin: Callable[..., object] | None = None, *arguments: Any
) -> Iterator[concurrent.futures.Executor]:
    """Yields a pool of processes.

    They end when this process ends for any reason, and at once if the block raises. A script that uses them
    needs `if __name__ == "__main__":`, as always with multiprocessing.

    Args:
        processes: their number.
        begin: a function of a module that each process calls first.
        *arguments: its arguments.

    Raises:
        RuntimeError: a process was killed.
    """
    # Spawned, not forked: a fork of a process with JAX's threads may deadlock.
    context = multiprocessing.get_context("spawn")
    # Nothing is written to this pipe. The processes see its end when we close our side or die. (An Event
    # would deadlock on those that were killed while they waited for it.)
    ending, alive = context.Pipe(duplex=False)
    executor = concurrent.futures.ProcessPoolExecutor(processes, context, _begin, (ending, begin, arguments))
    with ending, alive:
        try:
            yield executor
        except BaseException as error:
            executor.shutdown(wait=False, cancel_futures=True)  # a part takes too long to wait for
            if isinstance(error, BrokenProcessPool):
                raise RuntimeError(
                    "a worker process was killed (out of memory?); start again, finished parts are kept"
                ) from error
            raise
        executor.shutdown()


def _begin(ending: Connection, begin: Callable[..., object] | None, arguments: tuple) -> None:
    """Makes this process exit when its parent closes the pipe or dies; Ctrl-C is left to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        ending.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    if begin is not None:
        begin(*arguments)
