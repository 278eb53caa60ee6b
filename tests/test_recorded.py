"""The record of tests notices what changed, and says where."""

import json

import pytest

from tests import recorded


@pytest.fixture
def test_file(tmp_path, monkeypatch):
    file = tmp_path / "test_a.py"
    monkeypatch.setenv("RECORD", "write")
    recorded.check(file, "sizes", {"a": 1, "b": [1.5, None]})
    recorded.check(file, "looks", [1.23456789, {"c": "x"}], 1e-3)
    monkeypatch.delenv("RECORD")
    return file


def test_what_is_recorded_passes(test_file):
    recorded.check(test_file, "sizes", {"a": 1, "b": (1.5, None)})
    recorded.check(test_file, "looks", [1.2349, {"c": "x"}], 1e-3)
    assert json.loads(test_file.with_suffix(".json").read_text())["looks"][0] == 1.2346


@pytest.mark.parametrize(
    ("name", "value", "tolerance", "place"),
    [
        ("sizes", {"a": 2, "b": [1.5, None]}, 0, "sizes.a: got 2, expected 1"),
        ("sizes", {"a": 1.0, "b": [1.5, None]}, 0, "sizes.a: got 1.0"),
        ("sizes", {"a": True, "b": [1.5, None]}, 0, "sizes.a: got True"),
        ("sizes", {"a": 1, "b": [1.5001, None]}, 0, r"sizes.b\[0\]: got 1.5001"),
        ("sizes", {"a": 1, "b": [1.5]}, 0, r"sizes.b: got \[1.5\]"),
        ("sizes", {"b": [1.5, None]}, 0, r"sizes.a: got '\(absent\)'"),
        ("sizes", {"a": 1, "b": [1.5, None], "d": None}, 0, "sizes.d: got None"),
        ("looks", [1.3, {"c": "x"}], 1e-3, r"looks\[0\]: got 1.3"),
        ("looks", [float("nan"), {"c": "x"}], 1e-3, r"looks\[0\]: got nan"),
        ("others", [1], 0, r"others: got \[1\], expected None"),
    ],
)
def test_a_difference_is_named(test_file, name, value, tolerance, place):
    with pytest.raises(AssertionError, match=place):
        recorded.check(test_file, name, value, tolerance)
