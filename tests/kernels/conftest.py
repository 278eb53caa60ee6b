import pytest

from tests.kernels import noting_kernels


@pytest.fixture
def calls(monkeypatch):
    """The notes of the implementations of `noting_kernels.OPERATION`."""
    return noting_kernels.install(monkeypatch)
