"""The optimizers of the papers that `torch.optim` lacks, in plain PyTorch over lists of tensors.

`torch.optim.RMSprop` adds epsilon to the root, and its mean of squares starts at 0; there is no LAMB.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch  # pyrefly: ignore[missing-import]
from torch import nn  # pyrefly: ignore[missing-import]

Tensors = list[torch.Tensor]


class Optimizer:
    """Base class: the first step creates the state; parameters without gradients then are never updated.

    Attributes:
        states: lists of tensors like the parameters.
        count: number of steps made.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, compiled: bool):
        self.parameters, self.compiled, self.count = list(parameters), compiled, 0
        self.states: tuple[list[torch.Tensor], ...] = ()
        self._update = torch.compile(self.update) if compiled else self.update
        if compiled:  # a variant for each shape
            torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)

    def filled(self, value: float) -> list[torch.Tensor]:
        """Returns tensors like the parameters."""
        return [torch.full_like(parameter, value) for parameter in self.parameters]

    def start(self) -> None:
        """Creates the state."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Computes what depends on `count`, the number of this step from 1."""

    def update(self, parameters: Tensors, gradients: Tensors, *states: Tensors) -> None:
        """Updates parameters and their states."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self) -> None:
        """Makes a step with the parameters' gradients."""
        if not self.count:
            self.parameters = [parameter for parameter in self.parameters if parameter.grad is not None]
            self.start()
        self.count += 1
        self.prepare()
        lists = self.parameters, [parameter.grad for parameter in self.parameters], *self.states
        if not self.compiled:
            self._update(*lists)
            return
        # One by one: compiling the update of hundreds of tensors at once takes many minutes and
        # gigabytes.
        for tensors in zip(*lists, strict=True):
            self._update(*([tensor] for tensor in tensors))


class RMSProp(Optimizer):
    """TensorFlow's RMSProp: lr * g / sqrt(mean of g^2 + epsilon), with momentum if it is not 0."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        lr: float,
        decay: float,
        epsilon: float,
        initial: float,
        momentum: float = 0.0,
        compiled: bool,
    ):
        """Takes the mean's first value as `initial`."""
        super().__init__(parameters, compiled=compiled)
        self.lr, self.decay, self.epsilon, self.momentum = lr, decay, epsilon, momentum
        self.initial = initial

    def start(self):
        self.states = (self.filled(self.initial), *([self.filled(0)] if self.momentum else []))

    def update(self, parameters, gradients, *states):
        means, *moving = states
        torch._foreach_mul_(means, self.decay)
        torch._foreach_addcmul_(means, gradients, gradients, 1 - self.decay)
        roots = torch._foreach_add(means, self.epsilon)
        torch._foreach_sqrt_(roots)
        updates = torch._foreach_div(gradients, roots)
        if moving:
            (sums,) = moving
            torch._foreach_mul_(sums, self.momentum)
            torch._foreach_add_(sums, updates)
            updates = sums
        torch._foreach_add_(parameters, updates, alpha=-self.lr)


class LAMB(Optimizer):
    """LAMB (You et al. 2020): Adam's update and the decay, scaled by |p| / |update| for each parameter.

    Vectors (biases) have neither decay nor the ratio. The rate rises linearly over `rising` updates and then
    falls linearly to 0 at `steps`.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        lr: float,
        steps: int,
        rising: int,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        compiled: bool,
    ):
        super().__init__(parameters, compiled=compiled)
        self.lr, self.steps, self.rising = lr, steps, rising
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay

    def start(self):
        self.states = self.filled(0), self.filled(0)
        # Tensors, since a number that changes would be compiled anew.
        self.rate, *self.corrections = (torch.ones((), device=self.parameters[0].device) for _ in range(3))

    def prepare(self):
        before = self.count - 1
        falling = (self.steps - before) / (self.steps - self.rising)
        self.rate.fill_(self.lr * (self.count / self.rising if before < self.rising else falling))
        for correction, beta in zip(self.corrections, self.betas, strict=True):
            correction.fill_(1 - beta**self.count)

    def update(self, parameters, gradients, *states):
        (firsts, seconds), (b1, b2), (first, second) = states, self.betas, self.corrections
        torch._foreach_lerp_(firsts, gradients, 1 - b1)
        torch._foreach_mul_(seconds, b2)
        torch._foreach_addcmul_(seconds, gradients, gradients, 1 - b2)
        roots = torch._foreach_div(seconds, second)
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, self.eps)
        updates = torch._foreach_div(firsts, first)
        torch._foreach_div_(updates, roots)
        for parameter, update in zip(parameters, updates, strict=True):
            if parameter.ndim > 1:
                update.add_(parameter, alpha=self.weight_decay)
                over, under = parameter.norm(), update.norm()
                update.mul_(torch.where((over > 0) & (under > 0), over / under, 1.0))
        torch._foreach_mul_(updates, self.rate)
        torch._foreach_sub_(parameters, updates)


def adam(parameters: Iterable[nn.Parameter], *, compiled: bool, **settings: Any) -> torch.optim.Optimizer:
    """Returns PyTorch's Adam in its fused form, which needs no compilation."""
    return torch.optim.Adam(parameters, fused=True, **settings)


KINDS: Mapping[str, Callable[..., Any]] = {
    "agent": RMSProp,
    "tp_transformer": adam,
    "folnet": LAMB,
    "ntm": RMSProp,
}
"""The optimizer of each kind of subject."""
