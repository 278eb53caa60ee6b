"""Checks that a function draws at most once with each key that it has."""

from collections.abc import Callable
from typing import Any

# `jax.debug_key_reuse` does the same when a program is compiled; this only traces.
from jax.experimental.key_reuse._core import check_key_reuse


def used_once(function: Callable[..., Any], *arguments: Any) -> None:
    """Raises `jax.errors.KeyReuseError` if a key is used twice."""
    check_key_reuse(function, *arguments)
