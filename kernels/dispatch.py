"""Chooses the implementation of a call, by name or by platform, and its block sizes.

An operation has a definition (`reference`), a blockwise implementation that runs anywhere (`xla`) and
hand-written kernels (`gpu`, `tpu`). The choice cannot always be made while a call is traced, since one
`jax.export` artifact may hold programs for cpu, cuda and tpu. A call that may use a hand-written kernel is
therefore one primitive, `kernel_p`, which chooses when it is lowered for a platform. (A Pallas call inside
`jax.lax.platform_dependent` cannot be exported for several platforms.)

The rules:

- `implementation=None` takes `xla`, except on a chip for which a table in `kernels/tables/` names a
  hand-written kernel as checked and faster for such shapes, or where `kernels.prove` has found a kernel right
  and faster for this very call. Exported artifacts and programs that the compiler partitions by itself (`jit`
  over several devices) always take `xla`, which runs on any chip and can be partitioned; in `shard_map` each
  device runs its own kernel.
- A name takes that implementation or raises its `NotImplementedError`. A sequence of names takes the first
  that supports the arguments on the platform, or raises `NoImplementation` with the error of each. There is
  no other fallback.
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any, Literal

import jax
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from kernels import chips, tables
from kernels._jax_internals import without_manual_axis_checks
from kernels.implementations import (
    HARDWARE,
    INLINE,
    INTERPRETED,
    PLATFORMS,
    Choice,
    Implementation,
    Name,
    NoImplementation,
    Operation,
    checked_names,
    choose,
    partitioned,
    refusal,
    run_backend,
    unsupported,
)

__all__ = [
    "HARDWARE",
    "Choice",
    "Implementation",
    "Name",
    "NoImplementation",
    "Operation",
    "checked_names",
    "kernel_p",
    "run",
    "same_manual_axes",
    "unsupported",
]


def run(
    operation: Operation, config: Any, *arrays: Array | None, implementation: Implementation = None
) -> Array:
    """Returns the operation's output, computed by the implementation that the rules above choose.

    Args:
        operation: the operation.
        config: its static settings.
        *arrays: its arrays with one batch axis; a mask may be None.
        implementation: None, a name, or names to try in order.

    Raises:
        ValueError: `implementation` has an unknown name.
        NotImplementedError: the named implementation does not support these arguments (raised at once) or
            this platform (raised when the call is lowered for it).
        NoImplementation: the same of several names, with the error of each.
    """
    names = checked_names(operation, implementation)
    # What is taken by default is chosen when the call is lowered, and is checked then.
    checked: tuple[Name, ...] = names if implementation is not None else ("xla",)
    reasons: dict[Name, str | None] = dict.fromkeys(names)
    reasons |= {name: unsupported(operation, name, config, arrays) for name in checked}
    choice = Choice(
        asked=implementation if implementation is None or isinstance(implementation, str) else names,
        usable=tuple(name for name, reason in reasons.items() if reason is None),
        refused=tuple((name, reason) for name, reason in reasons.items() if reason is not None),
    )
    if not choice.usable:
        raise refusal(operation, choice.asked, reasons)
    arrays = same_manual_axes(arrays)
    if choice.usable[0] == "reference":
        return operation.reference(config, *arrays)[0]
    if choice.usable[0] in INLINE:  # runs on every platform, so the names after it are never tried
        choice = dataclasses.replace(choice, usable=choice.usable[:1])
    count = operation.differentiable
    return _differentiable(operation, config, choice, arrays[:count], arrays[count:])[0]


def same_manual_axes(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Inside `shard_map`, marks all arrays as varying over the axes that any varies over.

    The marking's transpose sums the gradient over those axes, which is what a replicated argument needs.
    """
    varying = frozenset().union(*(_varying(x) for x in arrays if x is not None))
    return tuple(
        x
        if x is None or not (missing := varying - _varying(x))
        else jax.lax.pcast(x, tuple(missing), to="varying")
        for x in arrays
    )


def _varying(x: Any) -> frozenset:
    return jax.typeof(x).manual_axis_type.varying


# ---- forward, backward and tangent
#
# A derivative is one linear call of `kernel_p`, direction "tangent", whose transpose is the backward pass. So
# forward mode, reverse mode and their compositions keep the same: the arrays, the output and the residual.


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _differentiable(operation, config, choice, arrays, masks):
    return _call("forward", operation, config, choice, (*arrays, *masks))


@functools.partial(_differentiable.defjvp, symbolic_zeros=True)
def _derivative(operation, config, choice, primals, tangents):
    arrays, masks = primals
    results = _differentiable(operation, config, choice, arrays, masks)
    # Zeros are left out: as arrays they would be kept for the backward pass.
    moved = [None if isinstance(tangent, SymbolicZero) else tangent for tangent in tangents[0]]
    if all(tangent is None for tangent in moved):
        return results, tuple(map(jax.numpy.zeros_like, results))
    return results, _call("tangent", operation, config, choice, (*arrays, *masks, *results, *moved))


def _call(direction, operation, config, choice, operands) -> tuple:
    if choice.usable[0] in INLINE and direction != "tangent":
        device = jax.devices()[0]
        chip = chips.named(device.device_kind, device.platform)
        return _execute(choice.usable[0], direction, operation, config, chip, operands)
    leaves, tree = jax.tree.flatten(operands)
    outputs = kernel_p.bind(
        *leaves,
        direction=direction,
        operation=operation,
        config=config,
        choice=choice,
        tree=tree,
    )
    return tuple(outputs)


def _execute(
    name: str,
    direction: Literal["forward", "backward", "tangent"],
    operation: Operation,
    config: Any,
    chip: chips.Chip | None,
    operands: Sequence[Any],
) -> tuple:
    """Calls a backend, with the block sizes of the chip's table for such shapes if there are any."""
    count = len(operation.batch_axis)
    arrays = operands[:count]
    if direction == "tangent":
        return tuple(operation.backend("xla").tangent(config, *operands))
    if direction == "backward":
        *operands, dresidual = operands
        if dresidual is not None:  # only in derivatives of derivatives, and kernels do not know it
            return tuple(operation.backend("xla").backward(config, *operands, dresidual=dresidual))
    if name == "reference":
        return _differentiate_reference(direction, operation, config, operands)
    backend = INTERPRETED.get(name, name)
    blocks = None
    if chip is not None and name == backend:
        kind, sizes = operation.describe(config, *arrays)
        blocks = tables.blocks(chip.kind, operation.name, backend, direction, kind, sizes)
    options: dict[str, Any] = {}
    if backend in HARDWARE:
        own = chip is not None and chip.backend == backend
        options = {"interpret": name in INTERPRETED, "chip": chip if own else chips.DEFAULT[backend]}
    return run_backend(operation, name, direction, config, operands, blocks=blocks, **options)


def _differentiate_reference(direction, operation, config, operands) -> tuple:
    if direction == "forward":
        return tuple(operation.reference(config, *operands))
    *arrays, _, _, cotangent = operands
    masks = arrays[operation.differentiable :]
    _, pullback = jax.vjp(
        lambda *x: operation.reference(config, *x, *masks)[0], *arrays[: operation.differentiable]
    )
    return pullback(cotangent)


# ---- the primitive, which chooses an implementation when it is lowered for a platform

kernel_p = Primitive("logic_zoo_kernel")
kernel_p.multiple_results = True


@functools.cache
def _compiled(**params):
    return jax.jit(functools.partial(kernel_p.bind, **params))


@kernel_p.def_impl
def _run_eagerly(*leaves, **params):
    return _compiled(**params)(*leaves)


@kernel_p.def_abstract_eval
def _shapes(*leaves, direction, operation, config, choice, tree):
    operands = jax.tree.unflatten(tree, leaves)
    if direction == "backward":
        outputs = operands[: operation.differentiable]
    else:
        outputs = operation.outputs(config, *operands)
    return [_typed_like(leaves[0], x.shape, x.dtype) for x in outputs]


def _typed_like(aval, shape, dtype):
    """Returns a shape that varies over the same manual axes as `aval` and is not sharded otherwise."""
    sharding = aval.sharding.update(spec=jax.P(*[None] * len(shape)))
    return aval.update(shape=tuple(shape), dtype=dtype, weak_type=False, sharding=sharding)


def _lower(context, *leaves, platform, direction, operation, config, choice, tree):
    module = context.module_context
    exported = module.lowering_parameters.for_export or len(module.platforms or ()) > 1
    chip = None if exported else chips.here(platform)
    operands = jax.tree.unflatten(tree, context.avals_in)
    arrays = operands[: len(operation.batch_axis)]
    name = "xla"
    if direction != "tangent":
        split = partitioned(module.axis_context)
        name = choose(operation, config, choice, arrays, platform, chip, split)

    def function(*leaves):
        return _execute(name, direction, operation, config, chip, jax.tree.unflatten(tree, leaves))

    # This lowers the program of one device. In `shard_map` JAX would check its manual axes a second time,
    # which fails for interpreted kernels.
    alike = [aval.update(manual_axis_type=jax.sharding.ManualAxisType()) for aval in context.avals_in]
    with without_manual_axis_checks():
        return mlir.lower_fun(function, multiple_results=True)(context.replace(avals_in=alike), *leaves)


for _platform in PLATFORMS:
    mlir.register_lowering(kernel_p, functools.partial(_lower, platform=_platform), platform=_platform)


def _second_derivative(primals, tangents, **params):
    """Differentiates the backward pass and the tangent, as the loops of `xla` that they are."""
    function = functools.partial(_on_leaves, **params)
    tangents = [ad.instantiate_zeros(tangent) for tangent in tangents]
    return jax.jvp(function, tuple(primals), tuple(tangents))


def _on_leaves(*leaves, direction, operation, config, tree, **_):
    return list(_execute("xla", direction, operation, config, None, jax.tree.unflatten(tree, leaves)))


ad.primitive_jvps[kernel_p] = _second_derivative


def _transpose(cotangents, *leaves, direction, operation, config, choice, tree):
    """Rule for reverse mode: the transpose of the tangent is the backward pass."""
    if direction != "tangent":
        raise NotImplementedError(f"transpose: got the {direction} pass, which is not linear")
    count = len(operation.batch_axis)
    operands = jax.tree.unflatten(tree, leaves)
    saved, tangents = operands[: count + 2], operands[count + 2 :]
    dout, dresidual = cotangents
    # Called eagerly, a vjp passes on NumPy arrays.
    dout = jax.numpy.asarray(ad.instantiate_zeros(dout))
    dresidual = None if isinstance(dresidual, ad.Zero) else jax.numpy.asarray(dresidual)
    found = _call("backward", operation, config, choice, (*saved, dout, dresidual))
    gradients = [
        gradient if ad.is_undefined_primal(tangent) else None
        for tangent, gradient in zip(tangents, found, strict=True)
        if tangent is not None
    ]
    return [None] * (len(leaves) - len(gradients)) + gradients


ad.primitive_transposes[kernel_p] = _transpose


def _batch(leaves, axes, **params):
    """Rule for `vmap`: merges a mapped axis with the batch axis, or else calls the kernel in a loop."""
    operation, tree = params["operation"], params["tree"]
    mapped = [axis is not None for axis in axes]
    leaves = [
        jax.numpy.moveaxis(x, axis, 0) if m else x for x, axis, m in zip(leaves, axes, mapped, strict=True)
    ]
    size = next(x.shape[0] for x, m in zip(leaves, mapped, strict=True) if m)
    has_batch = _has_batch(operation, params["direction"], tree)
    every_output_has = params["direction"] != "backward" or all(
        operation.batch_axis[: operation.differentiable]
    )
    if not every_output_has or any(m and not batch for m, batch in zip(mapped, has_batch, strict=True)):
        leaves = [x if m else _repeat(x, size) for x, m in zip(leaves, mapped, strict=True)]
        results = jax.lax.map(lambda slices: kernel_p.bind(*slices, **params), leaves)
        return results, [0] * len(results)
    batch = leaves[0].shape[1] if mapped[0] else leaves[0].shape[0]
    joined = []
    for x, m, is_batch in zip(leaves, mapped, has_batch, strict=True):
        if is_batch and (m or x.shape[0] == batch):  # an unmapped mask of batch 1 broadcasts
            x = x if m else _repeat(x, size)
            x = jax.numpy.broadcast_to(x, (size, batch, *x.shape[2:])).reshape(size * batch, *x.shape[2:])
        joined.append(x)
    results = kernel_p.bind(*joined, **params)
    return [x.reshape(size, batch, *x.shape[1:]) for x in results], [0] * len(results)


def _repeat(x: Array, size: int) -> Array:
    return jax.numpy.broadcast_to(x, (size, *x.shape))


def _has_batch(operation: Operation, direction: str, tree) -> list[bool]:
    """Returns for every leaf of the operands whether its first axis is the batch."""
    operands = jax.tree.unflatten(tree, range(tree.num_leaves))
    flags = [*operation.batch_axis, True, True]  # the arrays, out and residual
    if direction == "tangent":
        flags += operation.batch_axis[: operation.differentiable]
    with_cotangents = itertools.chain(flags, itertools.repeat(True))
    return [flag for operand, flag in zip(operands, with_cotangents, strict=False) if operand is not None]


batching.primitive_batchers[kernel_p] = _batch
