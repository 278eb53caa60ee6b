"""Recurrent models of sequences: a cell that linear logic denotes, DeltaProduct, and an LSTM."""

import jax
from flax import linen as nn
from jaxtyping import Array, Float

from experiments import baselines
from experiments.reasoning.models.base import Encoded, Model, Sizes
from experiments.reasoning.tasks.base import Problems, Task
from llrnn import model as models


class Recurrent(nn.Module):
    """A cell of `llrnn` over one-hot symbols, and the output equation.

    Attributes:
        task: of the problems.
        cell: the cell.
    """

    task: Task
    cell: nn.RNNCellBase

    @nn.compact
    def __call__(self, problems: Problems) -> Float[Array, "B N C"]:
        """Returns the logits after each symbol."""
        inputs = jax.nn.one_hot(problems.tokens, self.task.vocabulary)
        return models.RecurrentModel(self.cell, self.task.classes)(inputs).logits


def _second_order(task: Task, sizes: Sizes) -> Recurrent:
    """The linear second-order cell, h -> (sum_i x_i Z_i) h, normalised; `hidden` is the size of h."""
    cell = models.make_cell("second_order", features=sizes.hidden, update="linear", normalize=True)
    return Recurrent(task, cell)


def _lstm(task: Task, sizes: Sizes) -> Encoded:
    """One LSTM of `hidden` units."""
    return Encoded(task, baselines.LSTM(sizes.hidden), sizes.features)


def _delta_product(task: Task, sizes: Sizes) -> Encoded:
    """DeltaProduct with two Householder steps a symbol: Siems et al. (2025)."""
    cell = baselines.DeltaProductCell(sizes.num_heads, sizes.features // sizes.num_heads, 2)
    encoder = baselines.RecurrentEncoder(cell, sizes.num_layers, sizes.hidden)
    return Encoded(task, encoder, sizes.features)


MODELS = {
    "second_order": Model(_second_order, kinds=("sequence",)),
    "delta_product": Model(_delta_product, kinds=("sequence",)),
    "lstm": Model(_lstm, kinds=("sequence",)),
}
