"""A training step compiled once, timed, counted and weighed: what the benchmarks of whole models share."""

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
"""Sizes of the matrices whose product is the rate that steps are held against."""


class Room(NamedTuple):
    """What is measured of an experiment: its folder in `results/`, and the arguments of `rows`."""

    folder: str
    cases: Callable[[], Mapping[str, tuple[str, Any]]]
    measure: Callable[[Any, float, float], dict[str, Any] | list[dict[str, Any]]]


def compiling(
    step: Callable[..., Any], carried: tuple[Any, ...], given: tuple[Any, ...]
) -> Callable[[], Any]:
    """A call that compiles a step for `measure`; the step may overwrite what is carried and gives it anew."""
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
    """The part of a row that is measured.

    Args:
        program: compiles the step; beforehand, so that it cannot be compiled again unnoticed: other shapes or
            types would be an error.
        carried: what a call changes; the step may overwrite it.
        given: the same at every call.
        carry: from what a call returns to what the next one is given.
        seconds: of a block of timing.
        count: what a call goes through, by name: {"tokens": 512} becomes `tokens_per_second`.
        operations: of the model's contractions in a call, forward and backward; None if not countable.
        rate: operations a second of a large matrix product of the same type.

    Returns:
        "seconds" a call, rates, "utilisation" (what the contractions would take at that rate, over what the
        call takes), "peak_bytes" and "temporary_bytes" as the compiler gives them, "compile_seconds".
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
    """A loss that returns `runtime.Sums` as one that returns their mean."""

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
    """The part of a row that is measured of a step of gradient descent on a loss of parameters and what is
    given.

    The contractions of `counted_loss` are counted, the loss's by default; options are those of `measure`.
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
    """Multiplications and additions of a function's contractions; None if a loop's length is unknown.

    Those of the plain path, whatever kernel is the default on this chip.
    """
    with mock.patch.object(tables, "read", dict):
        try:
            return contractions.operations(contractions.of(function, *args))
        except ValueError:
            return None


def peak_bytes(memory: Any) -> int | None:
    """Of a program's `memory_analysis`: what it is given and gives, and what it takes meanwhile."""
    if memory is None:
        return None
    given = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return given + memory.temp_size_in_bytes


def matrix_rate(size: int, seconds: float, dtype: str) -> float:
    """Operations a second of a product of square matrices, as measured here; of a size of 0 see `MATRIX`."""
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
    """Rows as they are found, a rate before the first case of its type; what the budget leaves out is named.

    `measure` is given a case, the rate of its type and the seconds of a block, and gives the rest of its
    row, or rows. The rate is that of products of matrices of a size, 0: see `MATRIX`. No case is begun after
    `budget` seconds; 0: all are.
    """
    start, rates = time.monotonic(), {}
    for name, (dtype, case) in cases.items():
        row: dict[str, Any] = {"name": name, "dtype": dtype}
        if 0 < budget < time.monotonic() - start:
            yield row | {"failed": "not begun: the budget is spent"}
            continue
        if dtype not in rates:
            rates[dtype] = matrix_rate(matrix, seconds, dtype)
            product = f"product of large {dtype} matrices"
            yield {"name": product, "dtype": dtype, "operations_per_second": rates[dtype]}
        began = time.perf_counter()
        try:
            found = measure(case, rates[dtype], seconds)
        except Exception as error:  # out of memory, unsupported: a finding, and the others go on
            found = {"failed": timing.one_line(error)}
        row["wall_seconds"] = round(time.perf_counter() - began, 1)
        for one in found if isinstance(found, list) else [found]:
            yield row | one
