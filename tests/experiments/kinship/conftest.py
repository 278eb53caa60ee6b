"""Finished runs shared by the kinship tests, since their programs take long to compile."""

import pytest

from experiments.kinship import train
from tests import compiling
from tests.experiments.kinship.small import looped, small


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The config, workdir and results of the smallest run; tests must not change the workdir."""
    config, workdir = small(), tmp_path_factory.mktemp("kinship") / "run"
    with compiling.quickly():  # as in all modules that compare it with runs of their own
        return config, workdir, train.main(config, workdir=workdir)


@pytest.fixture(scope="session")
def finished_looped(tmp_path_factory):
    """The same of a looped FOLNet that says what everyone is to everyone."""
    config, workdir = looped(), tmp_path_factory.mktemp("kinship_looped") / "run"
    with compiling.quickly():
        return config, workdir, train.main(config, workdir=workdir)
