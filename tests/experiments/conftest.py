"""What the experiments' tests share: a finished run of BoxWorld, whose programs take long to compile."""

import pytest

from experiments import boxworld
from tests.experiments.small_boxworld import small


@pytest.fixture(scope="session")
def boxworld_run(tmp_path_factory):
    """Workdir and result of the smallest run, without interruption; to be looked at, not continued."""
    workdir = tmp_path_factory.mktemp("boxworld") / "run"
    return workdir, boxworld.main(small(), workdir=workdir)
