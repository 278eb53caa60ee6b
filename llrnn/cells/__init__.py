"""Recurrent cells: the named ones of the paper and the general LLRNN cell of a proof."""

from llrnn.cells.declarations import Command, Data, Fixed, Input, Weight
from llrnn.cells.general import LLRNNCell
from llrnn.cells.recurrent import ElmanCell, HigherOrderCell, MultiplicativeCell, SecondOrderCell

__all__ = [
    "Command",
    "Data",
    "ElmanCell",
    "Fixed",
    "HigherOrderCell",
    "Input",
    "LLRNNCell",
    "MultiplicativeCell",
    "SecondOrderCell",
    "Weight",
]
