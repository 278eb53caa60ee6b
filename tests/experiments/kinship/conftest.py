"""Finished runs shared by the kinship tests, since their programs take long to compile."""

import pytest

from experiments.kinship import train
from tests import workers
from tests.experiments.kinship.small import looped, small


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The config, workdir and results of the smallest run; tests must not change the workdir."""
    with workers.only_one(tmp_path_factory, "kinship") as folder:
        return small(), folder / "run", train.main(small(), workdir=folder / "run")


@pytest.fixture(scope="session")
def finished_looped(tmp_path_factory):
    """The same of a looped FOLNet that says what everyone is to everyone."""
    with workers.only_one(tmp_path_factory, "kinship_looped") as folder:
        return looped(), folder / "run", train.main(looped(), workdir=folder / "run")
