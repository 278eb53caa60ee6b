"""What the workers of a run of the tests share: a folder, and the finished runs in it."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import compiling


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of this run of the tests that all of its workers see."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@contextlib.contextmanager
def only_one(factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """Yields a shared folder for a run of an experiment, to one worker at a time.

    The first one trains. For the others, `main` returns at once, since the run there is finished. Programs
    compile quickly, as in all modules that compare such a run with runs of their own.
    """
    folder = shared_folder(factory) / name
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with compiling.quickly():
            yield folder
    finally:
        os.close(descriptor)
