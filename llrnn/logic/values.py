"""Arithmetic of denotations, and the ways in and out: what a user of values needs, in one namespace.

`representation` says what the values of each type are; `boundary` reads and gives them, `coordinates` turns
bang-free ones into arrays and back, `calculus` differentiates.
"""

from llrnn.logic.boundary import coerce, plain
from llrnn.logic.calculus import directional, extend
from llrnn.logic.coordinates import dense, flatten, matrix, unflatten
from llrnn.logic.representation import (
    Kets,
    LinearMap,
    PureTensors,
    Value,
    WeightedKet,
    add,
    ket,
    scale,
    superpose,
    zero,
)

__all__ = [
    "Kets",
    "LinearMap",
    "PureTensors",
    "Value",
    "WeightedKet",
    "add",
    "coerce",
    "dense",
    "directional",
    "extend",
    "flatten",
    "ket",
    "matrix",
    "plain",
    "scale",
    "superpose",
    "unflatten",
    "zero",
]
