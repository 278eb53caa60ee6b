"""Printing of types and terms with as few brackets as possible."""

from collections.abc import Callable
from typing import Any

from llrnn.logic.stackless import Steps, stackless

# The binding strength of a construct and the pieces of its text: strings, and parts with the least binding
# strength that needs no brackets there.
type Layout[N] = tuple[int, list[str | tuple[N, int]]]


@stackless
def written(node: Any, tightness: int, layout: Callable[[Any], Layout[Any]]) -> "Steps[str]":
    """Returns the text of a node, in brackets if its binding strength is below `tightness`."""
    level, pieces = layout(node)
    text = ""
    for piece in pieces:
        text += piece if isinstance(piece, str) else (yield written.steps(*piece, layout))
    return text if level >= tightness else f"({text})"
