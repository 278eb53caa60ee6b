"""Recurrent cells: the named ones of the paper and the general LLRNN cell of a proof."""

from llrnn.cells.coupling import entropy
from llrnn.cells.declarations import Command, Data, Fixed, Input, Weight
from llrnn.cells.general import LLRNNCell
from llrnn.cells.reading import LearnedNumerals, read_numerals, read_operators, read_tables
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
    "LearnedNumerals",
    "MultiplicativeCell",
    "SecondOrderCell",
    "Weight",
    "cell_of_text",
    "entropy",
    "read_numerals",
    "read_operators",
    "read_tables",
]
