"""Text with no more brackets than it needs, for types and for terms."""

from collections.abc import Callable
from typing import Any

from llrnn.logic.stackless import Steps, stackless

# How tightly a construct holds its parts, and its text in pieces: strings, and parts with the tightness that
# they need to stand there without brackets.
type Layout[N] = tuple[int, list[str | tuple[N, int]]]


@stackless
def written(node: Any, tightness: int, layout: Callable[[Any], Layout[Any]]) -> "Steps[str]":
    """The text of a node where this tightness is asked for."""
    level, pieces = layout(node)
    text = ""
    for piece in pieces:
        text += piece if isinstance(piece, str) else (yield written.steps(*piece, layout))
    return text if level >= tightness else f"({text})"
