"""Recurrent cells of Hu & Murfet (2017) in plain PyTorch, with a Python loop over the sequence.

Only the cell is compiled, since the compiler would unroll a whole sequence.
"""

import torch  # pyrefly: ignore[missing-import]
from torch import nn  # pyrefly: ignore[missing-import]


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
    """Example 2.10, (2.14) and (2.15), with location-based addressing by a few rotations."""

    def __init__(self, inputs: int, features: int, locations: int, width: int, powers: tuple[int, ...]):
        super().__init__()
        self.locations, self.width, self.rotations = locations, width, powers
        self.heads = nn.Linear(features, 2 * len(powers) + width)
        self.content = nn.Linear(width, features, bias=False)
        self.hidden = nn.Linear(features, features, bias=False)
        self.input = nn.Linear(inputs, features)

    def start(self, batch: int, like: torch.Tensor):
        """Returns the initial state: h_0 = 0, both addresses at location 0, and an almost empty memory."""
        address = like.new_zeros(batch, self.locations)
        address[:, 0] = 1
        memory = like.new_full((batch, self.width, self.locations), 1e-6)
        return like.new_zeros(batch, self.hidden.in_features), address, address, memory

    def moved(self, address, weights, sign):
        """Returns sum_i c_i R^(sign * power_i) (address)."""
        total = torch.zeros_like(address)
        for i, power in enumerate(self.rotations):
            total = total + weights[:, i : i + 1] * torch.roll(address, sign * power, dims=-1)
        return total

    def forward(self, state, x):
        """Maps (state, x) to (new state, h_0')."""
        h, reading, writing, memory = state
        count = len(self.rotations)
        read, write, add = self.heads(h).split((count, count, self.width), dim=-1)
        writing = self.moved(writing, write.softmax(-1), -1)
        memory = memory + torch.relu(add)[:, :, None] * writing[:, None, :]
        reading = self.moved(reading, read.softmax(-1), 1)
        seen = torch.bmm(memory, reading[:, :, None])[:, :, 0]
        h = torch.relu(self.content(seen) + self.hidden(h) + self.input(x))
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
