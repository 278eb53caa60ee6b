"""A finished run shared by the kinship tests, since its programs take long to compile."""

import pytest

from experiments.kinship import train
from tests import workers
from tests.experiments.kinship.small import published


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The config, workdir and results of the smallest run; tests must not change the workdir.

    It is of a looped FOLNet that says what everyone is to everyone, on files of published problems.
    """
    with workers.only_one(tmp_path_factory, "kinship") as folder:
        config = published(folder)
        return config, folder / "run", train.main(config, workdir=folder / "run")
