"""Recurrent cells: the named ones of the paper and the general LLRNN cell of a proof."""

from llrnn.cells.declarations import Command, Data, Fixed, Input, Weight
from llrnn.cells.general import LLRNNCell
from llrnn.cells.recurrent import ElmanCell, HigherOrderCell, MultiplicativeCell, SecondOrderCell
from llrnn.cells.text import cell_of_text

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
    "cell_of_text",
]
