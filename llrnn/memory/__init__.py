"""Recurrent cells with a memory: the paper's location-addressed Neural Turing Machine and relatives."""

from llrnn.memory.ntm import DihedralNTMCell, NTMCell, NTMState
from llrnn.memory.operators import OperatorNTMCell
from llrnn.memory.pattern import MultiplePatternNTMCell, PatternNTMCell, PolynomialStepNTMCell, RingsState
from llrnn.memory.rings import Ring
from llrnn.memory.tapes import StackRNNCell, StackState, TapeRNNCell, TapeState

__all__ = [
    "DihedralNTMCell",
    "MultiplePatternNTMCell",
    "NTMCell",
    "NTMState",
    "OperatorNTMCell",
    "PatternNTMCell",
    "PolynomialStepNTMCell",
    "Ring",
    "RingsState",
    "StackRNNCell",
    "StackState",
    "TapeRNNCell",
    "TapeState",
]
