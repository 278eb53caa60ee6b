"""Measures the time, rate, utilization and memory of training steps; shared by benchmarks of models."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import optax

from benchmarks import contractions, timing
from kernels import tables

MATRIX = {"cpu": 2048, "gpu": 8192, "tpu": 8192}
"""Size of the square matrices whose product gives the reference rate, by platform."""


class Room(NamedTuple):
    """An experiment's benchmark: its folder in `results/`, and the `cases` and `measure` of `rows`."""

    folder: str
    cases: Callable[[], Mapping[str, tuple[str, Any]]]
    measure: Callable[[Any, float, float], dict[str, Any] | list[dict[str, Any]]]


def compiling(
    step: Callable[..., Any], carried: tuple[Any, ...], given: tuple[Any, ...]
) -> Callable[[], Any]:
    """Returns a function that compiles a step for `measure`, with the `carried` arguments donated."""
    return lambda: jax.jit(step, donate_argnums=tuple(range(len(carried)))).lower(*carried, *given).compile()


def measure(
    program: Callable[[], Any],
    carried: tuple[Any, ...],
    given: tuple[Any, ...] = (),
    *,
    carry: Callable[[Any], tuple[Any, ...]] = tuple,
    seconds: float,
    count: dict[str, int],
    operations: int | None,
    rate: float,
) -> dict[str, Any]:
    """Measures a compiled training step.

    Args:
        program: compiles the step. Compiling it ahead of time turns other shapes or dtypes into an error
            instead of a recompilation.
        carried: arguments that each call updates and may overwrite.
        given: arguments that are the same for every call.
        carry: maps the result of a call to the `carried` arguments of the next one.
        seconds: approximate seconds per timing block.
        count: what a call processes, by name: {"tokens": 512} gives `tokens_per_second`.
        operations: operations of the model's contractions per call, forward and backward; None if they cannot
            be counted.
        rate: operations per second of a large matrix product of the same dtype.

    Returns:
        "seconds" per call, rates, "utilisation" (the time of the contractions at `rate`, relative to the time
        of the call), "peak_bytes" and "temporary_bytes" according to the compiler, and "compile_seconds".
    """
    began = time.perf_counter()
    compiled = program()
    seconds_of_compiling = time.perf_counter() - began
    held = [carried]

    def call() -> Any:
        held[0] = carry(compiled(*held[0], *given))
        return held[0]

    times = timing.alternate({"step": call}, blocks=5, block_seconds=seconds)["step"]
    median, memory = timing.spread(times)["median"], compiled.memory_analysis()
    return {
        "seconds": timing.spread(times),
        **{f"{name}_per_second": number / median for name, number in count.items()},
        "gflop_a_call": None if operations is None else operations / 1e9,
        "utilisation": None if operations is None else operations / median / rate,
        "peak_bytes": peak_bytes(memory),
        "temporary_bytes": memory.temp_size_in_bytes if memory else None,
        "compile_seconds": round(seconds_of_compiling, 1),
    }


def mean(loss: Callable[..., Any]) -> Callable[..., jax.Array]:
    """Converts a loss that returns `runtime.Sums` to one that returns their mean."""

    def of_sums(params: Any, batch: Any, key: Any) -> jax.Array:
        sums = loss(params, batch, key)
        return sums.numerator / sums.denominator

    return of_sums


def measure_training(
    loss: Callable[..., jax.Array],
    optimizer: optax.GradientTransformation,
    params: Any,
    given: tuple[Any, ...],
    *,
    counted_loss: Callable[..., jax.Array] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Measures a step of gradient descent on `loss(params, *given)`.

    Counts the contractions of `counted_loss`, by default those of `loss`; `options` are passed to `measure`.
    """

    def step(params: Any, state: Any, *given: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(jax.grad(loss)(params, *given), state, params)
        return optax.apply_updates(params, updates), state

    parameters = sum(leaf.size for leaf in jax.tree.leaves(params))
    operations = counted(jax.grad(counted_loss or loss), params, *given)
    carried = params, jax.jit(optimizer.init)(params)
    row = measure(compiling(step, carried, given), carried, given, operations=operations, **options)
    return {"parameters": parameters, **row}


def counted(function: Callable[..., Any], *args: Any) -> int | None:
    """Counts the operations of a function's contractions; None if the length of a loop is unknown.

    Always counts the plain path, whichever kernel is the default on this chip.
    """
    with mock.patch.object(tables, "read", dict):
        try:
            return contractions.operations(contractions.of(function, *args))
        except ValueError:
            return None


def peak_bytes(memory: Any) -> int | None:
    """Returns the arguments, outputs and temporaries of a program's `memory_analysis`, in bytes."""
    if memory is None:
        return None
    given = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return given + memory.temp_size_in_bytes


def matrix_rate(size: int, seconds: float, dtype: str) -> float:
    """Measures operations per second of a square matrix product; a size of 0 takes that of `MATRIX`."""
    size = size or MATRIX.get(jax.default_backend(), MATRIX["gpu"])
    left, right = (jnp.ones((size, size), dtype) for _ in range(2))
    product = jax.jit(jnp.matmul)
    times = timing.alternate({"product": lambda: product(left, right)}, blocks=5, block_seconds=seconds)
    return 2 * size**3 / min(times["product"])


def rows(
    cases: Mapping[str, tuple[str, Any]],
    measure: Callable[[Any, float, float], dict[str, Any] | list[dict[str, Any]]],
    *,
    matrix: int,
    seconds: float,
    budget: float,
) -> Iterator[dict[str, Any]]:
    """Yields the rows of all cases, preceded by the matrix product rate of each dtype.

    Args:
        cases: dtype and case, by name.
        measure: function of a case, the rate of its dtype and the seconds per timing block; returns the
            measured part of one or several rows.
        matrix: size of the matrices that give the rate; 0 takes that of `MATRIX`.
        seconds: approximate seconds per timing block.
        budget: seconds after which no further case is started; their rows say so. 0 means no limit.
    """
    start, rates = time.monotonic(), {}
    for name, (dtype, case) in cases.items():
        row: dict[str, Any] = {"name": name, "dtype": dtype}
        if 0 < budget < time.monotonic() - start:
            yield row | {"failed": "not started: budget spent"}
            continue
        if dtype not in rates:
            rates[dtype] = matrix_rate(matrix, seconds, dtype)
            product = f"product of large {dtype} matrices"
            yield {"name": product, "dtype": dtype, "operations_per_second": rates[dtype]}
        began = time.perf_counter()
        try:
            found = measure(case, rates[dtype], seconds)
        except Exception as error:  # out of memory or unsupported: recorded as a result
            found = {"failed": timing.one_line(error)}
        row["wall_seconds"] = round(time.perf_counter() - began, 1)
        for one in found if isinstance(found, list) else [found]:
            yield row | one
