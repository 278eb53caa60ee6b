"""Argument checks shared by the package's public functions."""

import numbers
from typing import Any


def whole_number(name: str, value: Any, least: int = 1) -> None:
    """Raises an error unless `value` is an integer of Python or NumPy of at least `least`.

    Raises:
        ValueError: with the argument's name and its value.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"{name}: got {value!r}, expected an integer of at least {least}")
