"""Numbers that the public functions refuse."""

from typing import Any


def whole_number(name: str, value: Any, least: int = 1) -> None:
    """Refuses what is not a Python integer of at least `least`.

    Raises:
        ValueError: with the argument's name and its value.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
