"""The cells with a stack or a tape, their proofs, and the mappings of their parameters."""

import numpy as np

from llrnn import logic, memory
from llrnn.cells import Command, Data, Fixed, LLRNNCell, Weight
from tests.llrnn.instances import FEATURES, LOCATIONS, ROTATION, SHARED, WIDTH, H, V, W, cut
from tests.llrnn.memory_instances import of_ring

TOP = np.eye(LOCATIONS)[0]
NUMERALS = logic.numeral_span(LOCATIONS - 1, W)


def identity(x):
    return x


def stack():
    """The address of a place goes to that of the place before it or after it, and beyond the ends to 0."""
    general = LLRNNCell(
        logic.stack_master(H, W, V),
        (
            Command("actions", logic.stack_actions(W, V)),
            Fixed("down", np.eye(LOCATIONS, k=1)),
            Fixed("up", np.eye(LOCATIONS, k=-1)),
            Fixed("functional of the top", TOP),
            Fixed("top", TOP),
            Data("write", activation=identity),
            Weight("content"),
        ),
        controller=(0,),
        inside=(0,),
    )
    named = memory.StackRNNCell(memory_size=LOCATIONS, memory_width=WIDTH, **SHARED)
    return named, general, lambda p: of_ring(p, cut(p, actions=3, write=WIDTH))


def tape():
    """The general cell's input starts with coordinates of the numerals 0 and 1, by which the length grows."""
    general = LLRNNCell(
        logic.tape_master(H, W, V),
        (
            Command("move", logic.tape_moves(W)),
            Command("count", logic.numeral_span(1, W), coupling="given"),
            Fixed("rotation", ROTATION),
            Fixed("rotation back", ROTATION.T),
            Fixed("functional of the head", TOP),
            Fixed("others", np.diag(1 - TOP)),
            Fixed("head", TOP),
            Fixed("numeral", NUMERALS.denote),
            Data("write", activation=identity),
            Weight("content"),
        ),
        controller=(0,),
        inside=(0,),
        initial=(np.zeros(FEATURES), (TOP, np.zeros((WIDTH, LOCATIONS)))),
    )
    named = memory.TapeRNNCell(memory_size=LOCATIONS, memory_width=WIDTH, **SHARED)
    return named, general, lambda p: of_ring(p, cut(p, move=5, write=WIDTH))
