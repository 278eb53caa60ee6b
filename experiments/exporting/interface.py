"""The description of an exportable model: a function of named arrays, with metadata for each array.

A size in a shape is a number or a symbol: "batch", or "length" for texts and sequences of variable length.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from experiments import runtime

BATCH, LENGTH = "batch", "length"

Function = Callable[[Any, Mapping[str, Any]], Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Input:
    """An input array of a model.

    Attributes:
        shape: numbers and symbols.
        dtype: NumPy's name of the dtype.
        meaning: description for readers of the manifest.
        default: fill value if the input is omitted; None if it is required.
        pad: fill value for padding shorter texts; None if the input cannot be padded.
        range: minimum and maximum value; None for all values of the dtype.
    """

    shape: tuple[int | str, ...]
    dtype: str
    meaning: str
    default: int | None = None
    pad: int | None = None
    range: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class Output:
    """An output array of a model.

    Attributes:
        shape: numbers and symbols.
        meaning: description for readers of the manifest.
        labels: names of the classes along the last axis, if the output has logits of named classes.
    """

    shape: tuple[int | str, ...]
    meaning: str
    labels: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Exportable:
    """A model with its parameters, as a function of named arrays.

    Attributes:
        kind: "agent", "sequence to sequence", ...: description for readers of the manifest.
        function: maps parameters and inputs to outputs.
        params: the parameters.
        inputs: inputs by name.
        outputs: outputs by name.
        source: origin of the parameters.
        lengths: lengths to export programs for; None if one program accepts any length, empty if the model
            has no length.
        shortest: minimum length.
        longest: maximum length; None if unlimited.
        text: conversion between text and arrays, for `experiments.exporting.run_exported`; None if the model
            handles no text.
        derivable: the function to use for an artifact with a derivative; None if there is no derivative.
        with_kernels: returns the function for given kernel implementations; None if there is no choice.
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
    """Returns the `source` of an `Exportable`: step, SHA-256 of the parameters, and `more`."""
    return {"step": step, **more, "params_sha256": runtime.params_sha256(params)}
