"""Names of variables."""

from collections.abc import Set


def shown(name: str) -> str:
    """Returns a name in print: a variable of a function that is traced, x#7, is x."""
    return name.partition("#")[0]


def fresh(hint: str, avoid: Set[str]) -> str:
    """Returns the first of hint, hint1, hint2, .. that is not in `avoid`."""
    if hint not in avoid:
        return hint
    stem, number = hint.rstrip("0123456789") or "x", 1
    while f"{stem}{number}" in avoid:
        number += 1
    return f"{stem}{number}"
