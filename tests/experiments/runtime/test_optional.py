"""Without Matplotlib, a run says so once and continues."""

import sys

import pytest

from experiments.runtime import optional


@pytest.fixture
def asked_anew():
    """Clears the cache before and after a test."""
    optional.can_draw.cache_clear()
    yield
    optional.can_draw.cache_clear()


@pytest.mark.usefixtures("asked_anew")
def test_it_is_said_once(monkeypatch, capsys):
    assert optional.can_draw()
    optional.can_draw.cache_clear()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert not optional.can_draw()
    assert not optional.can_draw()
    assert capsys.readouterr().err == "skipping figures: matplotlib is not installed\n"
