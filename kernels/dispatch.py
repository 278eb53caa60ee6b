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

import contextlib
import contextvars
import dataclasses
import functools
import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Literal, get_args

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from kernels import chips, proofs, tables
from kernels._jax_internals import without_manual_axis_checks
from kernels.tables import Direction

Name = Literal["reference", "xla", "gpu", "tpu", "gpu_interpret", "tpu_interpret"]
"""One implementation."""
Implementation = Name | Sequence[Name] | None
"""The argument `implementation`: one name, several to try in order, or None for the fastest proven here."""

NAMES: tuple[Name, ...] = get_args(Name)
HARDWARE = {"gpu": "cuda", "tpu": "tpu"}  # hand-written kernels and the platform that each runs on
INTERPRETED = {"gpu_interpret": "gpu", "tpu_interpret": "tpu"}  # the same kernels, run slowly on a CPU
# Run where they are traced, without the primitive: the interpreter of GPU kernels has ordered effects.
INLINE = ("reference", "xla", "gpu_interpret")
LEAST_THREADS = 8
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


class NoImplementation(ExceptionGroup, NotImplementedError):
    """No implementation supports a call; `exceptions` has the `NotImplementedError` of each one tried."""

    def derive(self, excs: Sequence[Any]) -> "NoImplementation":  # pyrefly: ignore[bad-override]
        """Returns a group of the same class, for `split`, `subgroup` and `except*`."""
        return NoImplementation(self.message, excs)


@dataclasses.dataclass(frozen=True)
class Choice:
    """The implementations that a call may still take when it is lowered.

    Attributes:
        asked: the argument `implementation`, a sequence as a tuple.
        usable: names that support the arguments, in the order to try.
        refused: the names that do not, each with the reason.
    """

    asked: Name | tuple[Name, ...] | None
    usable: tuple[Name, ...]
    refused: tuple[tuple[Name, str], ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Operation:
    """An operation: its implementations, and what the dispatcher needs to know about its arguments.

    Attributes:
        name: its name in tables and messages.
        reference: `(config, *arrays) -> (out, residual)`, the definition, differentiated by JAX.
        package: the package of its backends: modules `xla`, `gpu` and `tpu`, each with
            `block_candidates(config, *arrays)`, `forward(config, *arrays, blocks=None)`, which returns the
            same as `reference`, and `backward(config, *arrays, out, residual, cotangent, blocks=None)`.
            `forward` and `backward` of hand-written kernels also take `interpret` and `chip`, and their
            modules have `plan(direction, config, *arrays, chip, blocks=None)`, whose result has `launches`,
            and which raises `plans.Refused` for what they cannot compute; `xla` has `unsupported(config,
            *arrays)`.
            Modules are imported on first use, so that `xla` does not load Pallas.
        outputs: `(config, *arrays) -> (out, residual)` as shapes and dtypes.
        describe: `(config, *arrays) -> (kind, sizes)`: a line of a table applies to a call of the same kind
            and near sizes.
        batch_axis: for each array, whether its first axis is the batch.
        differentiable: the number of arrays, from the first, that have gradients; the others are masks.
    """

    name: str
    reference: Callable[..., tuple[Array, Array]]
    package: str
    outputs: Callable[..., tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]]
    describe: Callable[..., tuple[dict[str, Any], tables.Sizes]]
    batch_axis: tuple[bool, ...]
    differentiable: int

    def backend(self, name: str) -> ModuleType:
        """Imports and returns a backend's module; an interpreted kernel has the module of its hardware."""
        return importlib.import_module(f"{self.package}.{INTERPRETED.get(name, name)}")


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
    checked = names if implementation is not None else ("xla",)
    reasons = dict.fromkeys(names) | {name: unsupported(operation, name, config, arrays) for name in checked}
    choice = Choice(
        asked=implementation if implementation is None or isinstance(implementation, str) else names,
        usable=tuple(name for name, reason in reasons.items() if reason is None),
        refused=tuple((name, reason) for name, reason in reasons.items() if reason is not None),
    )
    if not choice.usable:
        raise _refusal(operation, choice.asked, reasons)
    arrays = same_manual_axes(arrays)
    if choice.usable[0] == "reference":
        return operation.reference(config, *arrays)[0]
    if choice.usable[0] in INLINE:  # runs on every platform, so the names after it are never tried
        choice = dataclasses.replace(choice, usable=choice.usable[:1])
    count = operation.differentiable
    return _differentiable(operation, config, choice, arrays[:count], arrays[count:])


def checked_names(operation: Operation, implementation: Implementation) -> tuple[Name, ...]:
    """Returns the names to try, in order.

    Raises:
        ValueError: a name is unknown, the sequence is empty, or "gpu_interpret" cannot run here.
    """
    if implementation is None:
        return ("gpu", "tpu", "xla") if _kernel_by_default(operation.name) else ("xla",)
    names = (implementation,) if isinstance(implementation, str) else tuple(implementation)
    if not names or not set(names) <= set(NAMES):
        raise ValueError(
            f"implementation: got {implementation!r}, expected None or one or several of "
            f"{', '.join(map(repr, NAMES))}"
        )
    if "gpu_interpret" in names:
        _check_interpretable(names)
    return names


def _kernel_by_default(operation: str) -> bool:
    """Returns whether a call that names no implementation may take a kernel when it is lowered."""
    if tables.fastest_anywhere(operation) or _collected.get() is not None:
        return True
    chip = chips.at_hand()
    return chip.backend is not None and (_prove_at_first_call() or proofs.any_for(operation, chip.kind))


def _prove_at_first_call() -> bool:
    return os.environ.get("LOGIC_ZOO_PROVE", "0") not in ("", "0") and jax.process_count() == 1


_collected: contextvars.ContextVar[dict | None] = contextvars.ContextVar("collected", default=None)


@contextlib.contextmanager
def collecting() -> Iterator[dict[tuple["Operation", Any, tuple], None]]:
    """Gives a dictionary whose keys are the calls with `implementation=None` that are lowered meanwhile.

    They are (operation, config, shapes and dtypes). Programs that the compiler partitions are left out.
    JAX's caches are cleared before and after, since a program in them is not lowered again.
    """
    jax.clear_caches()
    found: dict[tuple[Operation, Any, tuple], None] = {}
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)
        jax.clear_caches()


def _check_interpretable(names: tuple[Name, ...]) -> None:
    """Checks what JAX's interpreter of GPU kernels needs: without it a call would deadlock or fail later."""
    if names[0] != "gpu_interpret":
        raise ValueError(
            f"implementation: got {names!r}, expected 'gpu_interpret' first, since it runs on every platform"
        )
    threads = int(os.environ.get("NPROC") or os.cpu_count() or 1)
    if threads < LEAST_THREADS:
        raise ValueError(
            f"implementation: got 'gpu_interpret' with {threads} threads, expected at least {LEAST_THREADS}, "
            f"or it deadlocks; set NPROC={LEAST_THREADS} in the environment before JAX starts"
        )


def unsupported(
    operation: Operation, name: str, config: Any, arrays: Sequence[Any], chip: chips.Chip | None = None
) -> str | None:
    """Returns why an implementation cannot compute a call, None if it can.

    Args:
        operation: the operation.
        name: the implementation.
        config: static settings of the call.
        arrays: its arrays, or their shapes and dtypes.
        chip: where a hand-written kernel is to run; None for the chip that is here, or else the least of
            those that the kernel is written for.
    """
    if name == "reference":
        return None
    backend = operation.backend(name)
    if name == "xla":
        return backend.unsupported(config, *arrays)
    kernels = INTERPRETED.get(name, name)
    if name in INTERPRETED:
        chip = chips.DEFAULT[kernels]
    chip = chip or chips.here(HARDWARE[name]) or chips.DEFAULT[kernels]
    if chip.backend != kernels:
        written_for = ", ".join(chips.architectures(kernels))
        return f"chip: got {chip.kind} ({chip.architecture}), expected one of {written_for}"
    if not hasattr(backend, "plan"):  # TODO: until every backend has one
        return backend.unsupported(config, *arrays)
    try:
        for direction in DIRECTIONS:
            backend.plan(direction, config, *arrays, chip=chip)
    except NotImplementedError as error:
        return str(error)
    return None


def _refusal(
    operation: Operation, asked: Name | tuple[Name, ...] | None, reasons: Mapping[Any, str | None]
) -> NotImplementedError:
    """Returns the error of the implementation that was named, or a group with those of several."""
    errors = [
        NotImplementedError(f"implementation {name!r} of {operation.name}: {reason}")
        for name, reason in reasons.items()
    ]
    if isinstance(asked, str):
        return errors[0]
    # With the reasons in the message, programs that print or record only one line of it show them too.
    listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    return NoImplementation(
        f"implementation: got {asked!r}, expected one that supports this call of {operation.name} ({listed})",
        errors,
    )


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


# ---- forward and backward


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _differentiable(operation, config, choice, arrays, masks):
    return _call("forward", operation, config, choice, (*arrays, *masks))[0]


def _forward(operation, config, choice, arrays, masks):
    out, residual = _call("forward", operation, config, choice, (*arrays, *masks))
    return out, (arrays, masks, out, residual)


def _backward(operation, config, choice, saved, cotangent):
    arrays, masks, out, residual = saved
    cotangent = jax.numpy.asarray(cotangent)  # called eagerly, a vjp passes on NumPy arrays
    gradients = _call("backward", operation, config, choice, (*arrays, *masks, out, residual, cotangent))
    return gradients, None


_differentiable.defvjp(_forward, _backward)


def _call(direction, operation, config, choice, operands) -> tuple:
    if choice.usable[0] in INLINE:
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
    name: str, direction: Direction, operation: Operation, config: Any, chip: chips.Chip | None, operands
) -> tuple:
    """Calls a backend, with the block sizes of the chip's table for such shapes if there are any."""
    backend = INTERPRETED.get(name, name)
    arrays = operands[: len(operation.batch_axis)]
    kind, sizes = operation.describe(config, *arrays)
    blocks = None
    if chip is not None and name == backend:
        blocks = tables.blocks(chip.kind, operation.name, backend, direction, kind, sizes)
    if name == "reference":
        return _differentiate_reference(direction, operation, config, operands)
    options = {}
    if backend in HARDWARE:
        options["interpret"] = name in INTERPRETED
        if hasattr(operation.backend(name), "plan"):
            own = chip is not None and chip.backend == backend
            options["chip"] = chip if own else chips.DEFAULT[backend]
    function = getattr(operation.backend(name), direction)
    return tuple(function(config, *operands, blocks=blocks, **options))


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
    if direction == "forward":
        outputs = operation.outputs(config, *operands)
    else:
        outputs = operands[: operation.differentiable]
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
    name = _choose(operation, config, choice, arrays, platform, chip, _partitioned(module))

    def function(*leaves):
        return _execute(name, direction, operation, config, chip, jax.tree.unflatten(tree, leaves))

    # This lowers the program of one device. In `shard_map` JAX would check its manual axes a second time,
    # which fails for interpreted kernels.
    alike = [aval.update(manual_axis_type=jax.sharding.ManualAxisType()) for aval in context.avals_in]
    with without_manual_axis_checks():
        return mlir.lower_fun(function, multiple_results=True)(context.replace(avals_in=alike), *leaves)


for _platform in PLATFORMS:
    mlir.register_lowering(kernel_p, functools.partial(_lower, platform=_platform), platform=_platform)


def _choose(operation, config, choice, arrays, platform, chip, partitioned) -> str:
    if choice.asked is None:
        proven = None if partitioned or chip is None else _proven(operation, config, arrays, chip)
        if proven is None or HARDWARE[proven] != platform:
            return "xla"
        return "xla" if unsupported(operation, proven, config, arrays, chip) else proven
    reasons: dict[str, str | None] = dict(choice.refused)
    for name in choice.usable:
        if name not in HARDWARE:
            return name
        reasons[name] = (
            unsupported(operation, name, config, arrays, chip)
            if HARDWARE[name] == platform
            else f"platform: got {platform!r}, expected {HARDWARE[name]!r}"
        )
        if reasons[name] is None:
            return name
    asked = (choice.asked,) if isinstance(choice.asked, str) else choice.asked
    raise _refusal(operation, choice.asked, {name: reasons[name] for name in asked})


def _proven(operation, config, arrays, chip) -> str | None:
    """Returns the kernel that is the fastest on a chip for a call, None if none is known to be."""
    kind, sizes = operation.describe(config, *arrays)
    if not all(isinstance(size, int) for size in sizes.values()):
        return None
    if (found := _collected.get()) is not None:
        if chip.backend is None or unsupported(operation, chip.backend, config, arrays, chip):
            return None
        described = (None if x is None else jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)
        found[operation, config, tuple(described)] = None
        return None
    if chip.backend is not None:
        proof = proofs.find(chip.kind, operation.name, kind, sizes, chip.backend)
        supported = unsupported(operation, chip.backend, config, arrays, chip) is None
        if proof is None and supported and _prove_at_first_call() and chip == chips.at_hand():
            from kernels import proving  # which imports this module

            described = (None if x is None else jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)
            proof = proving.prove_call(proving.Call(operation, config, tuple(described)), chip)
        if proof is not None:
            return proof.backend if proof.use else None
    return tables.fastest(chip.kind, operation.name, kind, sizes)


def _partitioned(module) -> bool:
    """Returns whether the compiler will partition this program over several devices by itself."""
    return getattr(module.axis_context, "num_devices", None) not in (None, 1)


def _derivative(primals, tangents, **params):
    """Differentiates the two passes themselves (second order), by the derivatives of `xla`."""
    function = functools.partial(_on_leaves, **params)
    tangents = [ad.instantiate_zeros(tangent) for tangent in tangents]
    return jax.jvp(function, tuple(primals), tuple(tangents))


def _on_leaves(*leaves, direction, operation, config, tree, **_):
    return list(_execute("xla", direction, operation, config, None, jax.tree.unflatten(tree, leaves)))


ad.primitive_jvps[kernel_p] = _derivative


def _batch(leaves, axes, **params):
    """Rule for `vmap`: merges a mapped axis with the batch axis, or else calls the kernel in a loop."""
    operation, tree = params["operation"], params["tree"]
    mapped = [axis is not None for axis in axes]
    leaves = [
        jax.numpy.moveaxis(x, axis, 0) if m else x for x, axis, m in zip(leaves, axes, mapped, strict=True)
    ]
    size = next(x.shape[0] for x, m in zip(leaves, mapped, strict=True) if m)
    has_batch = _has_batch(operation, tree)
    every_output_has = params["direction"] == "forward" or all(
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


def _has_batch(operation: Operation, tree) -> list[bool]:
    """Returns for every leaf of arrays, out, residual and cotangent whether its first axis is the batch."""
    operands = jax.tree.unflatten(tree, range(tree.num_leaves))
    flags = (*operation.batch_axis, *[True] * (len(operands) - len(operation.batch_axis)))
    return [flag for operand, flag in zip(operands, flags, strict=True) if operand is not None]


batching.primitive_batchers[kernel_p] = _batch
