"""Recurrent cells of Hu & Murfet (2017) in plain PyTorch, with a Python loop over the sequence.

Only the cell is compiled, since the compiler would unroll a whole sequence.
"""

from collections.abc import Mapping

import torch  # pyrefly: ignore[missing-import]
from torch import nn  # pyrefly: ignore[missing-import]
from torch.nn import functional as F  # pyrefly: ignore[missing-import]


class HigherOrder(nn.Module):
    """Example 2.9, (2.13): a superposition of powers of an operator that is linear in the input.

    As in ours, powers are applied to the vector by Horner's rule.
    """

    def __init__(self, inputs: int, features: int, max_power: int):
        super().__init__()
        self.powers = nn.Linear(features, max_power + 1)
        self.operators = nn.Parameter(torch.zeros(inputs, features, features))
        self.hidden = nn.Linear(features, features, bias=False)
        self.input = nn.Linear(inputs, features)

    def start(self, batch: int, like: torch.Tensor):
        """Returns the initial state, 0."""
        return like.new_zeros(batch, self.hidden.in_features)

    def forward(self, h, x):
        """Maps (h, x) to (h', h')."""
        weights = self.powers(h).softmax(-1)
        operator = torch.einsum("bk,kij->bij", x, self.operators)
        total = weights[:, -1:] * h
        for i in reversed(range(weights.shape[-1] - 1)):
            total = torch.bmm(operator, total[:, :, None])[:, :, 0] + weights[:, i : i + 1] * h
        h = torch.relu(total + self.hidden(h) + self.input(x))
        return h, h


class TuringMachine(nn.Module):
    """Example 2.10, (2.14) and (2.15), with location-based addressing by a few rotations.

    With `authors`, as in their code: tanh, an erase vector, sharpened addresses, and the controller reads the
    memory before it is moved and written.
    """

    def __init__(
        self,
        inputs: int,
        features: int,
        locations: int,
        width: int,
        powers: tuple[int, ...],
        authors: bool = False,
    ):
        super().__init__()
        self.locations, self.width, self.rotations, self.authors = locations, width, powers, authors
        self.split = len(powers), len(powers), width, *((width, 1, 1) if authors else ())
        self.heads = nn.Linear(features, sum(self.split))
        self.content = nn.Linear(width, features, bias=False)
        self.hidden = nn.Linear(features, features, bias=False)
        self.input = nn.Linear(inputs, features)

    def start(self, batch: int, like: torch.Tensor):
        """Returns the initial state: h_0 = 0, both addresses at location 0, and an almost empty memory."""
        address = like.new_zeros(batch, self.locations)
        address[:, 0] = 1
        memory = like.new_full((batch, self.width, self.locations), 1e-6)
        return like.new_zeros(batch, self.hidden.in_features), address, address, memory

    def moved(self, address, logits, sign, gamma=None):
        """Returns sum_i c_i R^(sign * power_i) (address), sharpened if there is a gamma."""
        weights, total = logits.softmax(-1), torch.zeros_like(address)
        for i, power in enumerate(self.rotations):
            total = total + weights[:, i : i + 1] * torch.roll(address, sign * power, dims=-1)
        return total if gamma is None else ((1 + torch.relu(gamma)) * (total + 1e-6).log()).softmax(-1)

    def seen(self, memory, reading):
        """Returns V M(r)."""
        return self.content(torch.bmm(memory, reading[:, :, None])[:, :, 0])

    def forward(self, state, x):
        """Maps (state, x) to (new state, h_0')."""
        h, reading, writing, memory = state
        read, write, add, *rest = self.heads(h).split(self.split, dim=-1)
        erase, read_gamma, write_gamma = rest or (None, None, None)
        before = self.seen(memory, reading) if self.authors else None
        writing = self.moved(writing, write, -1, write_gamma)
        if erase is not None:
            memory = memory * (1 - torch.sigmoid(erase)[:, :, None] * writing[:, None, :])
        memory = memory + torch.relu(add)[:, :, None] * writing[:, None, :]
        reading = self.moved(reading, read, 1, read_gamma)
        seen = self.seen(memory, reading) if before is None else before
        h = seen + self.hidden(h) + self.input(x)
        h = torch.tanh(h) if self.authors else torch.relu(h)
        return (h, reading, writing, memory), h


class Sequence(nn.Module):
    """Runs a cell over inputs [B, T, I] and returns its outputs [B, T, D]."""

    def __init__(self, cell: nn.Module, *, compiled: bool):
        super().__init__()
        self.cell = cell
        self.step = torch.compile(cell) if compiled else cell  # same module: weights are registered once

    def forward(self, inputs):
        state, outputs = self.cell.start(len(inputs), inputs), []
        for x in inputs.unbind(1):
            state, output = self.step(state, x)
            outputs.append(output)
        return (torch.stack(outputs, dim=1),)


class Model(Sequence):
    """A cell over a sequence of symbols and logits [B, T, O] of its outputs."""

    def __init__(self, cell: nn.Module, outputs: int, *, compiled: bool):
        super().__init__(cell, compiled=compiled)
        self.outputs = nn.Linear(cell.hidden.in_features, outputs)

    def forward(self, inputs):
        return self.outputs(super().forward(F.one_hot(inputs, self.cell.input.in_features).float())[0])


def loss(model: Model, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the mean cross-entropy of the symbols that the mask scores."""
    logits, mask = model(batch["tokens"][..., 0].long()), batch["mask"]
    each = F.cross_entropy(logits.flatten(0, 1), batch["targets"].long().flatten(), reduction="none")
    return (each * mask.flatten()).sum() / mask.sum()
