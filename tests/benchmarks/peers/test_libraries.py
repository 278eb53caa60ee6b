"""Missing or broken peers are skipped with a reason."""

import dataclasses
import sys

import pytest

from benchmarks.peers import libraries


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (None, "some-peer is not installed"),
        ("import no_such_thing_of_theirs", "needs no_such_thing_of_theirs"),
        ("raise RuntimeError('too old for this JAX')", "cannot be imported: RuntimeError: too old"),
    ],
)
def test_an_absent_peer_has_a_reason(source, reason, tmp_path, monkeypatch):
    if source is not None:
        (tmp_path / "some_peer.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    broken = libraries.Library("Some", "some_peer", "some-peer", "benchmarks.peers.torch_programs")
    monkeypatch.setattr(libraries, "LIBRARIES", {"some": broken})
    found = libraries.find("some")
    assert reason in found.about["absent"]
    assert found.programs(None) == {}  # pyrefly: ignore


def test_a_present_peer_says_its_version(tmp_path, monkeypatch):
    (tmp_path / "their_side.py").write_text(
        "def programs(subject):\n    return {subject: None}\ndef about():\n    return {'threads': 2}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    numpy = libraries.Library("NumPy", "numpy", "numpy", "their_side")
    monkeypatch.setattr(libraries, "LIBRARIES", {"numpy": numpy})
    found = libraries.find("numpy")
    assert found.about == {"version": sys.modules["numpy"].__version__, "threads": 2}
    assert found.programs("trans") == {"trans": None}  # pyrefly: ignore


def test_every_library_says_what_it_is():
    for library in libraries.LIBRARIES.values():
        assert all(dataclasses.astuple(library))
        assert library.side.startswith("benchmarks.peers.")
