"""Recurrent cells: the named ones of the paper and the general LLRNN cell of a proof."""

from llrnn.cells.recurrent import ElmanCell, HigherOrderCell, MultiplicativeCell, SecondOrderCell

__all__ = ["ElmanCell", "HigherOrderCell", "MultiplicativeCell", "SecondOrderCell"]
