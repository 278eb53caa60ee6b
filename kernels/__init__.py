"""Array functions with hand-written kernels; knows no model. Each operation has a folder of its own.

`docs/how_to/kernels.md` describes how an implementation is chosen and how they are measured.
"""

from kernels.dispatch import Implementation, NoImplementation
from kernels.proving import KernelFailed, prove
from kernels.softmax import MASKED, masked_softmax
from kernels.strassen.api import strassen_attention
from kernels.trans.api import trans
from kernels.trans.sharded import trans_sharded
from kernels.triangle.attention import TriangleAttentionOutput, triangle_attention
from kernels.triangle.multiplication import triangle_multiplicative_update
from kernels.trilinear.api import trilinear_attention
from kernels.two_simplicial.api import two_simplicial_attention
from kernels.two_simplicial.reference import Logit

__all__ = [
    "MASKED",
    "Implementation",
    "KernelFailed",
    "Logit",
    "NoImplementation",
    "TriangleAttentionOutput",
    "masked_softmax",
    "prove",
    "strassen_attention",
    "trans",
    "trans_sharded",
    "triangle_attention",
    "triangle_multiplicative_update",
    "trilinear_attention",
    "two_simplicial_attention",
]
