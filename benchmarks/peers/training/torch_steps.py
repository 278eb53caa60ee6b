"""PyTorch's training steps: plain models, losses and optimizers, eager and with `torch.compile`."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch  # pyrefly: ignore[missing-import]
from torch import nn  # pyrefly: ignore[missing-import]

from benchmarks.peers import (
    torch_folnet,
    torch_impala,
    torch_llrnn,
    torch_programs,
    torch_simplicial,
    torch_tp_transformer,
)
from benchmarks.peers.torch_running import Queued, load, setup
from benchmarks.peers.training import torch_optimizers
from benchmarks.peers.training.subjects import Batch, Subject

about = torch_programs.about
LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "agent": torch_impala.loss,
    "tp_transformer": torch_tp_transformer.loss,
    "folnet": torch_folnet.loss,
    "ntm": torch_llrnn.loss,
}
"""The loss of each kind of subject: a function of the model, a batch and settings."""


def model(subject: Subject, compiled: bool) -> nn.Module:
    """Returns a subject's model; `compiled` only affects the recurrent one, whose cell is compiled."""
    settings = dict(subject.settings)
    if subject.kind == "ntm":
        outputs = settings.pop("outputs")
        cell = torch_llrnn.TuringMachine(**settings, authors=True)
        return torch_llrnn.Model(cell, outputs, compiled=compiled)
    makers = {
        "agent": torch_simplicial.Agent,
        "tp_transformer": torch_tp_transformer.TPTransformer,
        "folnet": torch_folnet.PreTraining,
    }
    return makers[subject.kind](**settings)


class TorchStep:
    """A model in training; calls make a step each."""

    def __init__(self, subject: Subject, params: dict[str, np.ndarray], *, compiled: bool):
        """Starts with our parameters, given by path."""
        self.device = setup()
        self.model = model(subject, compiled)
        self.names = load(self.model, params)
        self.model.to(self.device)
        settings = dict(subject.optimizer)
        self.clip = settings.pop("clip")
        self.optimizer = torch_optimizers.KINDS[subject.kind](
            self.model.parameters(), compiled=compiled, **settings
        )
        loss = functools.partial(LOSSES[subject.kind], **subject.loss)
        whole = compiled and subject.kind != "ntm"
        self.of_batch = torch.compile(loss) if whole else loss

    def __call__(self, batch: Batch) -> Any:
        """Makes a step on a host batch; `jax.block_until_ready` can wait for the result."""
        arrays = {name: torch.from_numpy(array).to(self.device) for name, array in batch.items()}
        self.model.zero_grad(set_to_none=True)
        loss = self.of_batch(self.model, arrays)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        loss = loss.detach()
        return Queued(loss) if self.device.type == "cuda" else loss

    def loss(self, result: Any) -> float:
        """Returns the loss before the step from its result."""
        return float(result.result if isinstance(result, Queued) else result)

    def params(self) -> dict[str, np.ndarray]:
        """Returns copies of the parameters by our paths, in our layout."""
        own, found = dict(self.model.named_parameters()), {}
        for path, (name, axes) in self.names.items():
            array = own[name].detach().cpu().numpy()
            found[path] = array.copy() if axes is None else array.transpose(np.argsort(axes)).copy()
        return found


def programs(subject: Subject) -> dict[str, Callable[[dict[str, np.ndarray]], TorchStep]]:
    """Returns functions from our parameters to the programs of a subject, eager and compiled."""

    def program(params: dict[str, np.ndarray], *, compiled: bool) -> TorchStep:
        torch.compiler.reset()  # earlier subjects' variants count against a limit
        return TorchStep(subject, params, compiled=compiled)

    return {
        "PyTorch, eager": functools.partial(program, compiled=False),
        "PyTorch, compiled": functools.partial(program, compiled=True),
    }
