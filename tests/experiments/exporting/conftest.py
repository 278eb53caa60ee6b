"""An artifact that several test modules use, and the model in it."""

import pytest

from experiments.exporting import Options, export_model, run_exported
from tests.experiments.exporting.small import SUMS


@pytest.fixture(scope="session")
def sums(tmp_path_factory):
    """The artifact of a one-line model, for lengths 4 and 8, with its derivative."""
    path = tmp_path_factory.mktemp("sums") / "sums.jaxmodel"
    export_model(SUMS, path, Options(derivative=True))
    return path


@pytest.fixture(scope="module")
def model(sums):
    """The artifact of `sums`, loaded."""
    return run_exported.load(sums)
