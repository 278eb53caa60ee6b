"""PyTorch's programs: plain versions of the subjects' architectures, eager and with `torch.compile`."""

import functools
from collections.abc import Callable
from typing import Any

import torch  # pyrefly: ignore[missing-import]
from torch import nn  # pyrefly: ignore[missing-import]

from benchmarks.peers import (
    torch_attention,
    torch_folnet,
    torch_llrnn,
    torch_simplicial,
    torch_tp_transformer,
)
from benchmarks.peers.comparing import Layout, Program, Subject
from benchmarks.peers.torch_running import Function, TorchProgram, setup

Made = tuple[nn.Module, Layout]
FUSED = ("fused attention", "fused attention with a bias")
"""Programs that are a single PyTorch function, where there is nothing to compile."""


def about() -> dict[str, Any]:
    """Returns facts for the record: the number of threads and the device."""
    device = setup()
    return {
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
    }


def modules(subject: Subject, compiled: bool) -> dict[str, Callable[[], Made]]:
    """Returns functions that make a subject's modules, by name in the record.

    `compiled` only affects sequences, whose cells are compiled.
    """

    def function(call: Callable[..., Any], layout: Layout | None = None) -> Callable[[], Made]:
        return lambda: (Function(call), layout or Layout())

    def module(make: Callable[..., nn.Module], layout: Layout | None = None) -> Callable[[], Made]:
        return lambda: (make(**subject.settings), layout or Layout())

    def sequence(make: Callable[..., nn.Module]) -> Callable[[], Made]:
        return lambda: (torch_llrnn.Sequence(make(**subject.settings), compiled=compiled), Layout())

    found: dict[str, dict[str, Callable[[], Made]]] = {
        "two_simplicial": {"": function(torch_attention.two_simplicial)},
        "trans": {
            "": function(torch_attention.trans, torch_attention.HEADS_LAST),
            "fused attention with a bias": function(torch_attention.trans_by_attention),
        },
        "causal_trans": {"": function(torch_attention.causal_trans, torch_attention.HEADS_LAST)},
        "self_attention": {
            "fused attention": function(torch_attention.self_attention, torch_attention.HEADS_FIRST)
        },
        "simplicial_block": {"": module(torch_simplicial.Block)},
        "agent": {"": module(torch_simplicial.Agent)},
        "tp_attention": {"": module(torch_tp_transformer.TPAttention)},
        "tp_encoder_layer": {"": module(torch_tp_transformer.EncoderLayer)},
        "folnet_layer": {"": module(torch_folnet.ReasonerLayer, torch_folnet.LAYOUT)},
        "higher_order": {"": sequence(torch_llrnn.HigherOrder)},
        "ntm": {"": sequence(torch_llrnn.TuringMachine)},
    }
    return found.get(subject.kind, {})


def programs(subject: Subject) -> dict[str, Callable[[], Program]]:
    """Returns the programs of a subject: each of its modules, eager and compiled."""

    def program(name: str, compiled: bool) -> Program:
        torch.compiler.reset()  # earlier subjects' variants count against a limit
        module, layout = modules(subject, compiled)[name]()
        whole = compiled and not isinstance(module, torch_llrnn.Sequence)
        return TorchProgram(subject, module, layout, compiled=whole)

    found: dict[str, Callable[[], Program]] = {}
    for name in modules(subject, False):
        title = ", ".join(filter(None, ("PyTorch", name)))
        found[f"{title}, eager"] = functools.partial(program, name, False)
        if name not in FUSED:
            found[f"{title}, compiled"] = functools.partial(program, name, True)
    return found
