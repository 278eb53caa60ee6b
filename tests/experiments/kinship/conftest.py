"""What the tests of kinship share: a finished run, whose programs take long to compile."""

import pytest

from experiments.kinship import train
from tests import compiling
from tests.experiments.kinship.small import small


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Config, workdir and results of the smallest run; to be looked at, not continued."""
    config, workdir = small(), tmp_path_factory.mktemp("kinship") / "run"
    with compiling.quickly():  # as in all modules that compare it with runs of their own
        return config, workdir, train.main(config, workdir=workdir)
