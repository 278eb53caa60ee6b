"""What implementations an operation has, and which of them a call may take on a chip.

`kernels/dispatch.py` describes the rules and makes the calls.
"""

import contextlib
import contextvars
import dataclasses
import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Literal, get_args

import jax
from jaxtyping import Array

from kernels import chips, proofs, tables
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
            `xla.backward` also takes `dresidual`, the cotangent of the residual, and `xla.tangent(config,
            *arrays, out, residual, *tangents)` returns the tangents of `forward`'s results from those of the
            arrays that have gradients, None for zero.
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
        chip: where a hand-written kernel is to run; None if it is not known yet: then the chip that is here
            if it has such kernels, or else the least of those that the kernel is written for.
    """
    if name == "reference":
        return None
    backend = operation.backend(name)
    if name == "xla":
        return backend.unsupported(config, *arrays)
    kernels = INTERPRETED.get(name, name)
    if chip is None and name in HARDWARE:
        chip = chips.here(HARDWARE[name])
        chip = chip if chip and chip.backend == kernels else None
    if chip is None or name in INTERPRETED:
        chip = chips.DEFAULT[kernels]
    if chip.backend != kernels:
        written_for = ", ".join(chips.architectures(kernels))
        return f"chip: got {chip.kind} ({chip.architecture}), expected one of {written_for}"
    try:
        for direction in DIRECTIONS:
            backend.plan(direction, config, *arrays, chip=chip)
    except NotImplementedError as error:
        return str(error)
    return None


def refusal(
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


def choose(
    operation: Operation,
    config: Any,
    choice: Choice,
    arrays: Sequence[Any],
    platform: str,
    chip: chips.Chip | None,
    split: bool,
) -> str:
    """Returns the implementation that a call takes in a program for a platform.

    Args:
        operation: the operation.
        config: static settings of the call.
        choice: what was asked for, and what supports the arguments.
        arrays: shapes and dtypes of the arrays.
        platform: the platform's name in JAX.
        chip: where the program will run; None if that is not known.
        split: whether the compiler partitions the program over devices by itself.

    Raises:
        NotImplementedError: none of the named implementations can be used, with the reason of each.
    """
    if choice.asked is None:
        proven = None if split or chip is None else _fastest(operation, config, arrays, chip)
        if proven is None or HARDWARE[proven] != platform:
            return "xla"
        return "xla" if unsupported(operation, proven, config, arrays, chip) else proven
    reasons: dict[str, str | None] = dict(choice.refused)
    for name in choice.usable:
        if name not in HARDWARE:
            return name
        if HARDWARE[name] != platform:
            reasons[name] = f"platform: got {platform!r}, expected {HARDWARE[name]!r}"
        elif split:
            reasons[name] = (
                "program: got one that the compiler partitions over devices, expected jax.shard_map"
            )
        else:
            own = chip or chips.DEFAULT[INTERPRETED.get(name, name)]
            reasons[name] = unsupported(operation, name, config, arrays, own)
        if reasons[name] is None:
            return name
    asked = (choice.asked,) if isinstance(choice.asked, str) else choice.asked
    raise refusal(operation, choice.asked, {name: reasons[name] for name in asked})


# ---- what is taken by default

_collected: contextvars.ContextVar[dict | None] = contextvars.ContextVar("collected", default=None)


def run_backend(
    operation: Operation, name: str, direction: str, config: Any, operands: Sequence[Any], **options: Any
) -> tuple:
    """Calls a backend: traces it for the operands.

    A hand-written kernel is traced without 64 bits: it takes no arrays of as many, and Pallas no indices.
    """
    narrow = INTERPRETED.get(name, name) in HARDWARE
    with jax.enable_x64(False) if narrow else contextlib.nullcontext():
        return tuple(getattr(operation.backend(name), direction)(config, *operands, **options))


@contextlib.contextmanager
def collecting() -> Iterator[dict[tuple[Operation, Any, tuple], None]]:
    """Gives a dictionary whose keys are the calls with `implementation=None` that are lowered meanwhile.

    They are (operation, config, shapes and dtypes), of calls that the chip's kernels support. Programs that
    the compiler partitions are left out. JAX's caches are cleared before and after, since a program in them
    is not lowered again.
    """
    jax.clear_caches()
    found: dict[tuple[Operation, Any, tuple], None] = {}
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)
        jax.clear_caches()


def _kernel_by_default(operation: str) -> bool:
    """Returns whether a call that names no implementation may take a kernel when it is lowered."""
    if tables.fastest_anywhere(operation) or _collected.get() is not None:
        return True
    chip = chips.at_hand()
    return chip.backend is not None and (_prove_at_first_call() or proofs.any_for(operation, chip.kind))


def _prove_at_first_call() -> bool:
    return os.environ.get("LOGIC_ZOO_PROVE", "0") not in ("", "0") and jax.process_count() == 1


def _fastest(operation: Operation, config: Any, arrays: Sequence[Any], chip: chips.Chip) -> str | None:
    """Returns the kernel that was proven to be the fastest on a chip for a call, None if none was."""
    kind, sizes = operation.describe(config, *arrays)
    backend = chip.backend
    if backend is None:
        return tables.fastest(chip.kind, operation.name, kind, sizes)
    described = (None if x is None else jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)
    call = operation, config, tuple(described)
    found, proof = _collected.get(), proofs.find(chip.kind, operation.name, kind, sizes, backend)
    asked = found is not None or (proof is None and _prove_at_first_call() and chip == chips.at_hand())
    if asked and unsupported(operation, backend, config, arrays, chip) is None:
        if found is not None:
            found[call] = None
            return None
        from kernels import proving  # which imports this module

        proof = proving.prove_call(proving.Call(*call), chip)
    if proof is not None:
        return proof.backend if proof.use else None
    return tables.fastest(chip.kind, operation.name, kind, sizes)


def partitioned(axis_context: Any) -> bool:
    """Returns whether the compiler partitions a program by itself over more than one device.

    Args:
        axis_context: that of the program's lowering: it has a number of devices, or in `jax.shard_map` a mesh
            of which some axes are manual.
    """
    if mesh := getattr(axis_context, "mesh", None):
        manual = axis_context.manual_axes
        return any(size > 1 for name, size in mesh.shape.items() if name not in manual)
    return getattr(axis_context, "num_devices", None) not in (None, 1)
