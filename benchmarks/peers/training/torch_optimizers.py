"""The optimizers of the papers that `torch.optim` lacks, in plain PyTorch over lists of tensors.

`torch.optim.RMSprop` adds epsilon to the root, and its mean of squares starts at 0; there is no LAMB.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch  # pyrefly: ignore[missing-import]
from torch import nn  # pyrefly: ignore[missing-import]


class Optimizer:
    """Base class: the first step creates the state; parameters without gradients then are never updated."""

    def __init__(self, parameters: Iterable[nn.Parameter], *, compiled: bool):
        self.parameters, self.count = list(parameters), 0
        self._update = torch.compile(self.update) if compiled else self.update

    def zeros(self) -> list[torch.Tensor]:
        """Returns tensors like the parameters."""
        return [torch.zeros_like(parameter) for parameter in self.parameters]

    def start(self) -> None:
        """Creates the state."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Computes what depends on `count`, the number of this step from 1."""

    def update(self, gradients: list[torch.Tensor]) -> None:
        """Updates the parameters and the state."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self) -> None:
        """Makes a step with the parameters' gradients."""
        if not self.count:
            self.parameters = [parameter for parameter in self.parameters if parameter.grad is not None]
            self.start()
        self.count += 1
        self.prepare()
        self._update([parameter.grad for parameter in self.parameters])


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
        self.means = [zeros.fill_(self.initial) for zeros in self.zeros()]
        self.moving = self.zeros() if self.momentum else []

    def update(self, gradients):
        torch._foreach_mul_(self.means, self.decay)
        torch._foreach_addcmul_(self.means, gradients, gradients, 1 - self.decay)
        roots = torch._foreach_add(self.means, self.epsilon)
        torch._foreach_sqrt_(roots)
        updates = torch._foreach_div(gradients, roots)
        if self.moving:
            torch._foreach_mul_(self.moving, self.momentum)
            torch._foreach_add_(self.moving, updates)
            updates = self.moving
        torch._foreach_add_(self.parameters, updates, alpha=-self.lr)


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
        self.first, self.second = self.zeros(), self.zeros()
        # Tensors, since a number that changes would be compiled anew.
        self.rate, *self.corrections = (torch.ones((), device=self.first[0].device) for _ in range(3))

    def prepare(self):
        before = self.count - 1
        falling = (self.steps - before) / (self.steps - self.rising)
        self.rate.fill_(self.lr * (self.count / self.rising if before < self.rising else falling))
        for correction, beta in zip(self.corrections, self.betas, strict=True):
            correction.fill_(1 - beta**self.count)

    def update(self, gradients):
        (b1, b2), (first, second) = self.betas, self.corrections
        torch._foreach_lerp_(self.first, gradients, 1 - b1)
        torch._foreach_mul_(self.second, b2)
        torch._foreach_addcmul_(self.second, gradients, gradients, 1 - b2)
        roots = torch._foreach_div(self.second, second)
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, self.eps)
        updates = torch._foreach_div(self.first, first)
        torch._foreach_div_(updates, roots)
        for parameter, update in zip(self.parameters, updates, strict=True):
            if parameter.ndim > 1:
                update.add_(parameter, alpha=self.weight_decay)
                over, under = parameter.norm(), update.norm()
                update.mul_(torch.where((over > 0) & (under > 0), over / under, 1.0))
        torch._foreach_mul_(updates, self.rate)
        torch._foreach_sub_(self.parameters, updates)


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
