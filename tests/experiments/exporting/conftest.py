"""An artifact that several test modules use."""

import pytest

from experiments.exporting import Options, export_model
from tests.experiments.exporting.small import SUMS


@pytest.fixture(scope="session")
def sums(tmp_path_factory):
    """The artifact of a one-line model, for lengths 4 and 8, with its derivative."""
    path = tmp_path_factory.mktemp("sums") / "sums.jaxmodel"
    export_model(SUMS, path, Options(derivative=True))
    return path
