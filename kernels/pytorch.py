"""The functions of `kernels` on PyTorch tensors, forward and backward.

    from kernels.pytorch import trilinear_attention

    out = trilinear_attention(query, key1, key2, value1, value2, window1=512, window2=32, causal=True)
    out.sum().backward()

Arguments are those of the functions in `kernels`, with tensors in place of arrays. Tensors reach JAX and
results come back through DLPack, without copies where both libraries use the same memory: on a CPU, and on a
GPU with a JAX that supports it. Programs are compiled once for each combination of shapes, dtypes and other
arguments. Gradients are those of JAX, for every floating-point tensor that requires one; second derivatives
are not supported.

PyTorch is imported at the first call. It is not among the packages that this library installs.
"""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

import kernels

__all__ = [
    "strassen_attention",
    "trans",
    "triangle_attention",
    "triangle_multiplicative_update",
    "trilinear_attention",
    "two_simplicial_attention",
]


def strassen_attention(*args: Any, **kwargs: Any) -> Any:
    """Computes `kernels.strassen_attention` of tensors."""
    return _on_tensors(kernels.strassen_attention, args, kwargs)


def trans(*args: Any, **kwargs: Any) -> Any:
    """Computes `kernels.trans` of tensors."""
    return _on_tensors(kernels.trans, args, kwargs)


def triangle_attention(*args: Any, return_aux: bool = False, **kwargs: Any) -> Any:
    """Computes `kernels.triangle_attention` of tensors.

    As in `cuequivariance_torch`, the output is a tensor, or with `return_aux` a tuple of output, log-sum-exp
    and maximum.
    """
    parts = _on_tensors(kernels.triangle_attention, args, kwargs)
    return parts if return_aux else parts[0]


def triangle_multiplicative_update(
    x: Any, direction: str = "outgoing", mask: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Computes `kernels.triangle_multiplicative_update` of tensors.

    The order of the arguments is that of `cuequivariance_torch`, without a `key`: all projections and gates
    must be given.
    """
    return _on_tensors(kernels.triangle_multiplicative_update, (x, direction, None, mask, *args), kwargs)


def trilinear_attention(*args: Any, **kwargs: Any) -> Any:
    """Computes `kernels.trilinear_attention` of tensors."""
    return _on_tensors(kernels.trilinear_attention, args, kwargs)


def two_simplicial_attention(*args: Any, **kwargs: Any) -> Any:
    """Computes `kernels.two_simplicial_attention` of tensors."""
    return _on_tensors(kernels.two_simplicial_attention, args, kwargs)


@functools.cache
def _torch() -> ModuleType:
    """Imports PyTorch.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import torch  # pyrefly: ignore[missing-import]
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        message = "torch: not installed, expected for kernels.pytorch: pip install torch"
        raise ModuleNotFoundError(message, name="torch") from None
    return torch


@functools.cache
def _bridge() -> Any:
    """Makes the autograd function: a compiled forward pass, and a backward pass that computes it again."""
    torch = _torch()

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, call, *tensors):
            ctx.call, ctx.device = call, tensors[0].device
            ctx.save_for_backward(*tensors)
            return _tensors(_forward(call)(*map(_array, tensors)), ctx.device)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, *cotangents):
            tensors = ctx.saved_tensors
            wanted = tuple(n for n, needed in enumerate(ctx.needs_input_grad[1:]) if needed)
            cotangents = tuple(map(_array, cotangents))
            found = _backward(ctx.call, wanted)(cotangents, *map(_array, tensors))
            gradients: list[Any] = [None] * len(tensors)
            for n, gradient in zip(wanted, _tensors(found, ctx.device), strict=True):
                gradients[n] = gradient
            return None, *gradients

    return Kernel


class _Call:
    """A function with every argument that is no tensor; equal calls share their compiled programs."""

    def __init__(self, function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]):
        """Takes tensors out of the arguments; `tensors` has them in order."""
        torch = _torch()
        leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=lambda x: x is None)
        self.function, self.tree = function, tree
        self.tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        self.rest = tuple(_TENSOR if isinstance(x, torch.Tensor) else x for x in leaves)
        self._key = function, tree, self.rest, tuple(map(type, self.rest))  # True == 1.0

    def __call__(self, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        """Calls the function with arrays for the tensors; returns its results as a tuple."""
        given = iter(arrays)
        leaves = [next(given) if x is _TENSOR else x for x in self.rest]
        args, kwargs = jax.tree.unflatten(self.tree, leaves)
        return tuple(jax.tree.leaves(self.function(*args, **kwargs)))

    def __hash__(self):
        return hash(self._key)

    def __eq__(self, other: object):
        return isinstance(other, _Call) and self._key == other._key

    def without_tensors(self) -> "_Call":
        """Returns an equal call that keeps no tensor alive."""
        other = object.__new__(_Call)
        other.__dict__ = self.__dict__ | {"tensors": None}
        return other


_TENSOR = object()


@functools.lru_cache(maxsize=256)
def _forward(call: _Call) -> Callable[..., tuple[jax.Array, ...]]:
    return jax.jit(call)


@functools.lru_cache(maxsize=256)
def _backward(call: _Call, wanted: tuple[int, ...]) -> Callable[..., tuple[jax.Array, ...]]:
    @jax.jit
    def gradients(cotangents, *arrays):
        def of_wanted(*values):
            every = list(arrays)
            for n, value in zip(wanted, values, strict=True):
                every[n] = value
            return call(*every)

        _, pull = jax.vjp(of_wanted, *(arrays[n] for n in wanted))
        return pull(cotangents)

    return gradients


def _on_tensors(function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
    """Calls a function of arrays with tensors.

    Raises:
        ValueError: there is no tensor, or they are on several devices; and whatever the function raises.
    """
    call = _Call(function, args, kwargs)
    devices = {str(x.device) for x in call.tensors}
    if len(devices) != 1:
        found = "tensors on " + ", ".join(sorted(devices)) if devices else "no tensor"
        raise ValueError(f"{function.__name__}: got {found}, expected PyTorch tensors on one device")
    parts = _bridge().apply(call.without_tensors(), *call.tensors)
    return parts[0] if len(parts) == 1 else parts


def _array(tensor: Any) -> jax.Array:
    """Returns a tensor as a JAX array, through DLPack."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype == _torch().float64 and not jax.config.read("jax_enable_x64"):
        raise ValueError(
            "tensor: got float64, expected float32 or less, or jax.config.update('jax_enable_x64', True)"
        )
    return jnp.from_dlpack(tensor)


def _tensors(arrays: tuple[jax.Array, ...], device: Any) -> tuple[Any, ...]:
    """Returns JAX arrays as tensors on a device, through DLPack.

    They are computed when this returns: PyTorch may then write to the memory of the inputs.
    """
    torch = _torch()
    return tuple(torch.from_dlpack(x).to(device) for x in jax.block_until_ready(arrays))
