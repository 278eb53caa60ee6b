"""Checks of arguments: what is a whole number."""

import re

import numpy as np
import pytest

from simplicial import checks


@pytest.mark.parametrize("value", [2, np.int64(2), np.uint8(9)])
def test_integers_of_numpy_are_whole_numbers(value):
    checks.whole_number("steps", value, 2)


@pytest.mark.parametrize("value", [1, np.int64(1), True, np.bool_(True), 2.0, "2", None])
def test_what_is_no_whole_number_is_named(value):
    message = f"steps: got {value!r}, expected an integer of at least 2"
    with pytest.raises(ValueError, match=re.escape(message)):
        checks.whole_number("steps", value, 2)
