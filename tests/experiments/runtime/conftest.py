"""Fixtures of the runtime's tests; makes the programs in this folder importable."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import claimed  # pyrefly: ignore[missing-import]

from experiments.runtime import claim_declaring


@pytest.fixture
def committed(monkeypatch):
    """Comparisons run as from a clean checkout."""
    monkeypatch.setattr(claim_declaring, "commit_of", lambda folder: "c0ffee")
    monkeypatch.setattr(claim_declaring, "untracked", lambda folder: [])


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory):
    """The folder of the small comparison after all its runs; not to be written to."""
    return claimed.ran(tmp_path_factory.mktemp("uninterrupted"))


@pytest.fixture(scope="session")
def begun(tmp_path_factory):
    """The folder of the small comparison after one of its reported seeds; not to be written to."""
    return claimed.ran(tmp_path_factory.mktemp("begun"), seeds=[1])
