"""What the experiments' tests share: a finished run of BoxWorld, whose programs take long to compile."""

import pytest

from experiments import boxworld
from tests import compiling
from tests.experiments.small_boxworld import small


@pytest.fixture(scope="session")
def boxworld_run(tmp_path_factory):
    """Workdir and result of the smallest run, without interruption; to be looked at, not continued."""
    workdir = tmp_path_factory.mktemp("boxworld") / "run"
    with compiling.quickly():  # as in all modules that compare it with runs of their own
        return workdir, boxworld.main(small(), workdir=workdir)
