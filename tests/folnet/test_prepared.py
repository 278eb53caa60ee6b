"""Errors while reading a prepared data set."""

from pathlib import Path

import pytest

from folnet.prepared import reading


@pytest.mark.parametrize(
    "error", [RuntimeError("a hash\nis wrong"), ValueError("Expecting value"), KeyError("x")]
)
def test_whatever_it_is_the_folder_is_named(error):
    message = r"^data/wikipedia/1\.0\.0: the data set is damaged or .*: (a hash|Expecting value|'x')$"
    with pytest.raises(ValueError, match=message), reading(Path("data/wikipedia/1.0.0")):
        raise error


def test_long_reasons_are_cut():
    with pytest.raises(ValueError, match=r"Datasets: x{300}$"), reading(Path("data")):
        raise RuntimeError("x" * 301)


def test_what_names_it_already_is_left_alone():
    with pytest.raises(ValueError, match=r"^data: no such split$"), reading(Path("data")):
        raise ValueError("data: no such split")
