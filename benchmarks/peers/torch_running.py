"""Runs a PyTorch module with our weights, eager or compiled."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch  # pyrefly: ignore[missing-import]
from torch import nn  # pyrefly: ignore[missing-import]

from benchmarks.peers.comparing import Direction, Layout, Subject


def setup() -> torch.device:
    """Selects all cores and full float32 products, and returns the device of JAX's platform."""
    import jax  # here, so that importing this module does not initialize a backend

    torch.set_num_threads(os.cpu_count() or 1)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    return torch.device("cuda" if jax.default_backend() == "gpu" and torch.cuda.is_available() else "cpu")


class Function(nn.Module):
    """A function as a module without parameters."""

    def __init__(self, function: Callable[..., torch.Tensor]):
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns the function's output as a tuple of one."""
        return (self.function(*inputs),)


def torch_name(path: str, array: np.ndarray) -> tuple[str, tuple[int, ...] | None]:
    """Returns the PyTorch name of one of our parameters, and our axes in PyTorch's order.

    The PyTorch modules have the names of ours. Kernels [inputs, outputs] become `weight` [outputs, inputs],
    those of convolutions [y, x, inputs, outputs] become [outputs, inputs, y, x], the `scale` of a LayerNorm
    becomes its `weight`, and a table named `type`, which is a method of every module, becomes `segment`.
    """
    *above, last = path.split("/")
    if last in ("kernel", "weight") and array.ndim in (2, 4):
        return ".".join((*above, "weight")), (1, 0) if array.ndim == 2 else (3, 2, 0, 1)
    return ".".join((*above, {"scale": "weight", "type": "segment"}.get(last, last))), None


def load(
    module: nn.Module, params: Mapping[str, np.ndarray]
) -> dict[str, tuple[str, tuple[int, ...] | None]]:
    """Copies our parameters, given by path, into a module, and returns their `torch_name` by path.

    Raises:
      ValueError: the module's parameters have different names or shapes.
    """
    names = {path: torch_name(path, array) for path, array in params.items()}
    parameters = dict(module.named_parameters())
    if different := set(parameters) ^ {name for name, _ in names.values()}:
        only = ", ".join(sorted(different))
        raise ValueError(f"module: got different parameters, expected ours; one side lacks {only}")
    with torch.no_grad():
        for path, (name, axes) in names.items():
            array = params[path] if axes is None else params[path].transpose(axes)
            if parameters[name].shape != array.shape:
                shape = tuple(parameters[name].shape)
                raise ValueError(f"{name}: got shape {shape}, expected {array.shape}")
            parameters[name].copy_(torch.from_numpy(np.ascontiguousarray(array)))
    return names


class Queued:
    """A result that a GPU may still be computing; `jax.block_until_ready` waits for it."""

    def __init__(self, result: Any):
        self.result = result

    def block_until_ready(self) -> "Queued":
        """Waits until the GPU has finished all queued work."""
        torch.cuda.synchronize()
        return self


class TorchProgram:
    """A module on our arrays, optionally with gradients of all parameters and floating-point inputs."""

    def __init__(self, subject: Subject, module: nn.Module, layout: Layout | None = None, *, compiled: bool):
        """Copies our weights into the module.

        Raises:
          ValueError: the parameters have different names or shapes.
        """
        device, self.layout = setup(), layout or Layout()
        self.names = load(module, subject.params)
        self.module = module.to(device)
        self.run = torch.compile(self.module) if compiled else self.module
        self.differentiable = subject.differentiable
        self.inputs = [
            torch.from_numpy(x.copy()).to(device) for x in self.layout.to_peer(subject.inputs, "inputs")
        ]
        self.cotangents = [
            torch.from_numpy(x.copy()).to(device)
            for x in self.layout.to_peer(subject.cotangents(), "outputs")
        ]
        self.queued = device.type == "cuda"

    def call(self, direction: Direction) -> Callable[[], Any]:
        """Returns a call: forward under `no_grad`, or a gradient, which first clears the previous one."""
        leaves = [self.inputs[i] for i in self.differentiable]

        def forward():
            with torch.no_grad():
                return self._waiting(self.run(*self.inputs))

        def gradient():
            self.module.zero_grad(set_to_none=True)
            for x in leaves:
                x.grad = None
            outputs = self.run(*self.inputs)
            torch.autograd.backward(outputs, self.cotangents)
            return self._waiting(outputs)

        for x in leaves:
            x.requires_grad_(direction == "gradient")
        return forward if direction == "forward" else gradient

    def _waiting(self, result):
        return Queued(result) if self.queued else result

    def arrays(self, direction: Direction, result: Any) -> dict[str, np.ndarray]:
        """Returns the outputs and the gradients of the last call, in our layout."""

        def numpy(tensor):
            return tensor.detach().cpu().numpy()

        outputs = result.result if isinstance(result, Queued) else result
        found = {
            f"output {i}": self.layout.to_ours(i, numpy(out), "outputs") for i, out in enumerate(outputs)
        }
        if direction == "forward":
            return found
        parameters = dict(self.module.named_parameters())
        for path, (name, axes) in self.names.items():
            grad = numpy(parameters[name].grad)
            found[f"gradient of {path}"] = grad if axes is None else grad.transpose(np.argsort(axes))
        for i in self.differentiable:
            found[f"gradient of input {i}"] = self.layout.to_ours(i, numpy(self.inputs[i].grad), "inputs")
        return found
