"""lucidrains' `simplicial-attention`: its plain attention, and that of signed determinants.

Its sliding windows are a Triton kernel for CUDA alone; they are not compared. Arrays are [B, H, N, D] there.
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
    """What is not compared, and why."""
    return {"not_compared": "sliding_two_simplicial_attn: a Triton kernel for CUDA alone"}


def functions(subject: Subject) -> dict[str, Callable[..., Any]]:
    """What it has for a subject."""

    def trilinear(query, key1, key2, value1, value2):
        return naive_two_simplicial_attend(query, (key1, key2), (value1, value2), **subject.settings)

    def signed(query, key1, key2, value):
        return naive_two_simplicial_attend(query, (key1, key2), (value, value), use_signed_determinant=True)

    return {"trilinear": {"": trilinear}, "signed": {"": signed}}.get(subject.kind, {})


def programs(subject: Subject) -> dict[str, Callable[[], Program]]:
    """Its attention, eager and compiled."""

    def program(call: Callable[..., Any], compiled: bool) -> Program:
        torch.compiler.reset()
        layout = Layout((HEADS_FIRST,) * len(subject.inputs), (HEADS_FIRST,))
        return TorchProgram(subject, Function(call), layout, compiled=compiled)

    return {
        f"simplicial-attention, {how}": functools.partial(program, call, how == "compiled")
        for call in functions(subject).values()
        for how in ("eager", "compiled")
    }
