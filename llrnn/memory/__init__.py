"""Recurrent cells with a memory: the Neural Turing Machine of the paper and its descendants."""

from llrnn.memory.ntm import NTMCell, NTMState
from llrnn.memory.rings import Ring

__all__ = ["NTMCell", "NTMState", "Ring"]
