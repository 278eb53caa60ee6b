"""lucidrains' `simplicial-attention`: its plain attention, trilinear or with signed determinants.

Its sliding windows are a Triton kernel for CUDA only, so they are not compared. Its arrays are [B, H, N, D].
"""

import functools
from collections.abc import Callable
from typing import Any

import torch  # pyrefly: ignore[missing-import]
from simplicial_attention import naive_two_simplicial_attend  # pyrefly: ignore[missing-import]

from benchmarks.peers.comparing import Layout, Program, Subject
from benchmarks.peers.torch_running import Function, TorchProgram

HEADS_FIRST = (0, 2, 1, 3)


def about() -> dict[str, Any]:
    """Returns facts for the record: what is not compared, and why."""
    return {"not_compared": "sliding_two_simplicial_attn: a Triton kernel for CUDA only"}


def trilinear(query, key1, key2, value1, value2, causal=False):
    """Computes trilinear attention; all arrays are [B, H, N, D]."""
    return naive_two_simplicial_attend(query, (key1, key2), (value1, value2), causal=causal)


def signed(query, key1, key2, value):
    """Computes attention with signed determinants; all arrays are [B, H, N, D]."""
    return naive_two_simplicial_attend(query, (key1, key2), (value, value), use_signed_determinant=True)


def programs(subject: Subject) -> dict[str, Callable[[], Program]]:
    """Returns its attention for a subject, eager and compiled."""
    if subject.kind not in ("trilinear", "signed"):
        return {}
    call = functools.partial({"trilinear": trilinear, "signed": signed}[subject.kind], **subject.settings)
    layout = Layout((HEADS_FIRST,) * len(subject.inputs), (HEADS_FIRST,))

    def program(compiled: bool) -> Program:
        torch.compiler.reset()
        return TorchProgram(subject, Function(call), layout, compiled=compiled)

    return {
        f"simplicial-attention, {how}": functools.partial(program, how == "compiled")
        for how in ("eager", "compiled")
    }
