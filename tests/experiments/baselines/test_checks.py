"""Checks of arguments: what is just allowed and what is just refused."""

import pytest

from experiments.baselines import checks


def test_a_divisor_is_positive():
    for value in (1, 4, 8):
        checks.divides("heads", value, "features", 8)
    for value in (-1, 0, 3, 16):
        with pytest.raises(ValueError, match=f"heads: got {value}, expected a divisor of features = 8"):
            checks.divides("heads", value, "features", 8)
