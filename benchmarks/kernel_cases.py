"""Cases for the kernel benchmarks: real shapes, random arrays, baselines, and lower bounds on the time.

Used by `benchmarks.kernels`, `benchmarks.accelerator`, `benchmarks.tune_kernels` and `benchmarks.aot`; needs
only JAX and NumPy.
"""

import argparse
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kernels import dispatch
from kernels.trans import api as trans_api
from kernels.trans import reference as trans_reference
from kernels.trans import shapes as trans_shapes
from kernels.trilinear import api as trilinear_api
from kernels.trilinear import shapes as trilinear_shapes
from kernels.two_simplicial import api as two_simplicial_api
from kernels.two_simplicial import shapes as two_simplicial_shapes
from kernels.two_simplicial.reference import Config as TwoSimplicialConfig
from kernels.two_simplicial.reference import Logit
from kernels.two_simplicial.reference import plain as two_simplicial_plain

DIRECTIONS = ("forward", "both")  # both: forward and backward, all gradients


@dataclasses.dataclass(frozen=True)
class Chip:
    """Peak rates of a chip: measured on one H200 (bf16 product, copy), or derived from its issue rates."""

    matrix: float  # bf16 operations per second
    copy: float  # bytes per second, read plus written
    issue: float  # float32 instructions per second
    special: float  # square roots or exponentials per second


CHIPS = {"NVIDIA H200": Chip(matrix=790e12, copy=4.3e12, issue=33.5e12, special=3.9e12)}


@dataclasses.dataclass(frozen=True)
class Case:
    """A call to measure."""

    name: str  # shape and dtype
    operation: dispatch.Operation
    config: Any  # static settings of the operation
    avals: tuple[jax.ShapeDtypeStruct | None, ...]  # shapes and dtypes of its arrays; None for no mask
    # what a user would otherwise write, by name, as `arrays -> out`; the most common one first
    baselines: Mapping[str, Callable[..., jax.Array]]
    work: tuple[str, int]  # name of the unit of work, and the number of units per forward pass
    floor: Callable[[Chip, str], float]  # `(chip, direction) -> seconds`, a lower bound on the time
    spread: tuple[float, ...]  # standard deviation of each random array
    # converts arrays for baselines with another layout, by name
    layout: Mapping[str, Callable[..., tuple]] = dataclasses.field(default_factory=dict)

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the arrays."""
        return next(aval.dtype for aval in self.avals if aval is not None)

    def draw(self, seed: int = 0) -> tuple[jax.Array | None, ...]:
        """Draws normal arrays scaled by `spread`, which keeps logits of order one, and masks of 70 %."""
        keys = jax.random.split(jax.random.key(seed), len(self.avals))

        def one(key, aval, spread):
            if aval.dtype == bool:
                return jax.random.bernoulli(key, 0.7, aval.shape)
            return jax.jit(lambda key: (jax.random.normal(key, aval.shape) * spread).astype(aval.dtype))(key)

        drawn = zip(keys, self.avals, self.spread, strict=True)
        return tuple(None if aval is None else one(key, aval, spread) for key, aval, spread in drawn)

    def function(self, direction: str, implementation: dispatch.Implementation) -> Callable[..., Any]:
        """Returns the operation as a function of its arrays, to be jitted."""

        def forward(*arrays):
            return dispatch.run(self.operation, self.config, *arrays, implementation=implementation)

        return forward if direction == "forward" else with_gradients(forward, self.operation.differentiable)

    def baseline(self, direction: str, name: str) -> Callable[..., Any]:
        """Returns a baseline as a function of the arrays returned by `arrays_of`."""
        forward = self.baselines[name]
        return forward if direction == "forward" else with_gradients(forward, self.operation.differentiable)

    def arrays_of(self, name: str, arrays: tuple) -> tuple:
        """Converts the arrays to the layout of a baseline."""
        return self.layout[name](*arrays) if name in self.layout else arrays


def with_gradients(forward: Callable[..., jax.Array], count: int) -> Callable[..., Any]:
    """Returns a function that gives the output and the gradients of the first `count` arrays."""

    def both(*arrays):
        out, pullback = jax.vjp(lambda *x: forward(*x, *arrays[count:]), *arrays[:count])
        return out, pullback(out)  # the output serves as a non-constant cotangent at no cost

    return both


def two_simplicial(
    shape: two_simplicial_shapes.Shape, dtype: Any, logit: Logit = "unsigned", masked: bool = False
) -> Case:
    """Builds a case of 2-simplicial attention, perhaps with a mask of triples."""
    config = TwoSimplicialConfig(logit=logit)
    batch, heads, n, m, d = shape.batch, shape.heads, shape.queries, shape.keys, shape.features
    sizes = ((batch, n, heads, d), *[(batch, m, heads, d)] * 2, (batch, m, heads, shape.e))
    avals = [jax.ShapeDtypeStruct(size, dtype) for size in (*sizes, (heads, shape.f, shape.e, shape.e))]

    mask = jax.ShapeDtypeStruct((batch, n, m, m), bool) if masked else None
    vector = (5 / d**1.5) ** (1 / 3)  # the product of three such vectors is about 5

    def floor(chip: Chip, direction: str) -> float:
        # Forward: a square root, an exponential and about 20 instructions per triple. Forward and backward:
        # three times as much.
        times = 1 if direction == "forward" else 3
        return times * shape.triples * max(2 / chip.special, 20 / chip.issue)

    return Case(
        f"{shape.name}{'' if logit == 'unsigned' else ' ' + logit} {np.dtype(dtype).name}",
        two_simplicial_api.OPERATION,
        config,
        (*avals, mask),
        {"plain einsum": lambda *arrays: two_simplicial_plain(config, *arrays)},
        ("triples", shape.triples),
        floor,
        (*[vector] * 3, 1.0, 1 / shape.e, 1.0),
    )


def trans(shape: trans_shapes.Shape, dtype: Any) -> Case:
    """Builds a case of the triangular contraction."""
    element = np.dtype(dtype).itemsize
    elements = (
        shape.batch
        * shape.heads
        * (shape.rows * shape.columns + shape.columns * shape.outputs + shape.rows * shape.outputs)
    )

    def heads_last(kernel_logits, premise, mask):
        return jnp.moveaxis(kernel_logits, 1, -1), jnp.moveaxis(premise, 1, -1), mask

    def floor(chip: Chip, direction: str) -> float:
        # Forward reads two arrays and writes one; backward reads four, including the output, and writes two.
        times = 1 if direction == "forward" else 3
        return times * max(elements * element / chip.copy, 2 * shape.multiply_adds / chip.matrix)

    return Case(
        f"{shape.name} {np.dtype(dtype).name}",
        trans_api.OPERATION,
        shape.config,
        (*(jax.ShapeDtypeStruct(size, dtype) for size in (shape.kernel_logits, shape.premise)), None),
        {
            "[B,T,T,H] einsum": lambda k, p, mask: trans_reference.plain(k, p, shape.causal),
            "head-major einsum": lambda k, p, mask: trans_reference.plain_head_major(k, p, shape.causal),
        },
        ("multiply-adds", shape.multiply_adds),
        floor,
        (1.0, 1.0, 1.0),
        {"[B,T,T,H] einsum": heads_last},
    )


def windows_gathered(config: Any, query, key1, key2, value1, value2) -> jax.Array:
    """Computes trilinear attention as a user would write it: gathers each query's windows, then einsums."""
    batch, length, heads, depth = query.shape
    groups = key1.shape[2]
    query = query.reshape(batch, length, groups, heads // groups, depth)

    def gathered(window):
        if config.causal:
            places = jnp.arange(length)[:, None] - jnp.arange(window)[None, :]
        else:
            places = jnp.broadcast_to(jnp.arange(length)[None, :], (length, length))
        return jnp.maximum(places, 0), places >= 0

    (first, allowed1), (second, allowed2) = (gathered(window) for window in config.reach(length))
    logits = jnp.einsum(
        "bngrd,bnjgd,bnkgd->bgrnjk",
        query,
        key1[:, first],
        key2[:, second],
        preferred_element_type=jnp.float32,
    )
    allowed = allowed1[:, :, None] & allowed2[:, None, :]
    weights = jax.nn.softmax(
        jnp.where(allowed[None, None, None], config.scale * logits, -1e30), axis=(-2, -1)
    ).astype(query.dtype)
    out = jnp.einsum("bgrnjk,bnjgd,bnkgd->bngrd", weights, value1[:, first], value2[:, second])
    return out.reshape(batch, length, heads, depth)


def trilinear(shape: trilinear_shapes.Shape, dtype: Any) -> Case:
    """Builds a case of trilinear attention."""
    config = shape.config

    def floor(chip: Chip, direction: str) -> float:
        # Forward: two products (FBGEMM's count). Backward: five more, two of them recomputed.
        return shape.operations / chip.matrix * (1 if direction == "forward" else 3.5)

    return Case(
        f"{shape.name} {np.dtype(dtype).name}",
        trilinear_api.OPERATION,
        config,
        tuple(jax.ShapeDtypeStruct(size, dtype) for size in (shape.query, *[shape.key] * 4)),
        {"gathered windows": lambda *arrays: windows_gathered(config, *arrays)},
        ("flop", shape.operations),
        floor,
        (1.0,) * 5,
    )


def all_cases(platform: str) -> Iterator[Case]:
    """Yields the cases of a platform, the most informative first; cases can repeat."""
    if platform == "cpu":
        for shape in two_simplicial_shapes.CPU:
            yield two_simplicial(shape, jnp.float32)
        for name in ("pre-training", "decoder"):
            yield trans(_named(name), jnp.float32)
        for shape in trilinear_shapes.CPU:
            yield trilinear(shape, jnp.float32)
        return
    for shape in (two_simplicial_shapes.VIRTUAL, two_simplicial_shapes.FULL):
        yield two_simplicial(shape, jnp.bfloat16)
    for name in ("FOLIO", "FOLIO, few heads", "pre-training, few heads"):
        yield trans(_named(name), jnp.bfloat16)
    yield trilinear(trilinear_shapes.FBGEMM[1], jnp.bfloat16)
    for dtype in (jnp.bfloat16, jnp.float32):
        for shape in two_simplicial_shapes.ACCELERATOR:
            yield two_simplicial(shape, dtype)
    for logit in ("trilinear", "signed"):
        yield two_simplicial(two_simplicial_shapes.VIRTUAL, jnp.bfloat16, logit)
    for shape in trans_shapes.REAL:
        yield trans(shape, jnp.bfloat16)
    for shape in trilinear_shapes.ACCELERATOR:
        yield trilinear(shape, jnp.bfloat16)


def to_compile() -> list[Case]:
    """Returns one case for every kernel, logit and dtype, and the corners of what kernels are written for.

    That is few enough for slow compilers.
    """
    two, small, wide = two_simplicial_shapes, *two_simplicial_shapes.CORNERS
    return [
        two_simplicial(two.VIRTUAL, jnp.bfloat16),
        two_simplicial(two.VIRTUAL, jnp.float32),
        two_simplicial(two.FULL, jnp.bfloat16),
        two_simplicial(two.VIRTUAL, jnp.bfloat16, "trilinear"),
        two_simplicial(two.VIRTUAL, jnp.bfloat16, "signed"),
        trans(_named("FOLIO"), jnp.bfloat16),
        trans(_named("pre-training"), jnp.float32),
        trans(_named("decoder, long"), jnp.bfloat16),
        trilinear(trilinear_shapes.FBGEMM[1], jnp.bfloat16),
        trilinear(trilinear_shapes.UNGROUPED, jnp.bfloat16),
        two_simplicial(small, jnp.bfloat16, "trilinear"),
        two_simplicial(small, jnp.float32),
        two_simplicial(wide, jnp.bfloat16),
        two_simplicial(wide, jnp.float32),
        two_simplicial(wide, jnp.float32, "trilinear"),
        two_simplicial(dataclasses.replace(wide, features=126, value_features=128), jnp.float32, "signed"),
        trans(trans_shapes.CORNER, jnp.bfloat16),
        trilinear(trilinear_shapes.CORNER, jnp.bfloat16),
    ]


def _named(name: str) -> trans_shapes.Shape:
    return next(shape for shape in trans_shapes.REAL if shape.name == name)


def chosen(found: Iterable[Case], only: str) -> Iterator[Case]:
    """Filters cases by a substring of their operation or name."""
    return (case for case in found if only in f"{case.operation.name} {case.name}")


def check_only(parser: argparse.ArgumentParser, only: str, found: Iterable[Any]) -> None:
    """Ends the program with an error if the flag `--only` has chosen nothing."""
    if not any(found):
        parser.error(f"--only: got {only!r}, expected a part of an operation or a case")


def cases(platform: str) -> list[Case]:
    """Returns `all_cases` without duplicates."""
    return list({(case.operation.name, case.name): case for case in all_cases(platform)}.values())
