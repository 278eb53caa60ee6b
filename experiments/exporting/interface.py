"""What an exported model is: a function of named arrays, with what is to be said about each.

A size in a shape is a number or a symbol: "batch", and "length" where texts or sequences may be of any.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from experiments import runtime

BATCH, LENGTH = "batch", "length"

Function = Callable[[Any, Mapping[str, Any]], Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Input:
    """An array that a model reads.

    Attributes:
        shape: numbers and symbols.
        dtype: as NumPy names it.
        meaning: for the reader of the manifest.
        default: what it is filled with where it is not given; None if it must be.
        pad: what fills a shorter text up; None if nothing can.
        range: the least and the greatest value; None for all of the type.
    """

    shape: tuple[int | str, ...]
    dtype: str
    meaning: str
    default: int | None = None
    pad: int | None = None
    range: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class Output:
    """An array that a model gives.

    Attributes:
        shape: numbers and symbols.
        meaning: for the reader of the manifest.
        labels: what the numbers along its last axis are logits of, where that has names.
    """

    shape: tuple[int | str, ...]
    meaning: str
    labels: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Exportable:
    """A model with its parameters, as a function of named arrays.

    Attributes:
        kind: "agent", "sequence to sequence", ...: for the reader of the manifest.
        function: from parameters and inputs to outputs.
        params: its parameters.
        inputs: by name.
        outputs: by name.
        source: where the parameters come from.
        lengths: of the programs it is exported as; None if `length` is free, empty if there is none.
        shortest: the least length.
        longest: the greatest length; None if any will do.
        text: how text becomes inputs and outputs text, for `experiments.exporting.run_exported`; None without
            text.
        derivable: the function to use where a derivative is asked for; None if there is no derivative.
        with_kernels: the function with the hand-written kernels named; None if it has none to choose.
    """

    kind: str
    function: Function
    params: Any
    inputs: Mapping[str, Input]
    outputs: Mapping[str, Output]
    source: Mapping[str, Any]
    lengths: tuple[int, ...] | None = ()
    shortest: int = 1
    longest: int | None = None
    text: Mapping[str, Any] | None = None
    derivable: Function | None = None
    with_kernels: Callable[[tuple[str, ...]], Function] | None = None


def describe_source(params: Any, step: int | None, **more: Any) -> dict[str, Any]:
    """Where parameters come from, as far as they tell it themselves."""
    return {"step": step, **more, "params_sha256": runtime.params_sha256(params)}
