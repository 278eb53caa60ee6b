"""Drawn calls of hand-written kernels lower for chips that are not here, or are refused with a reason."""

import collections
import contextlib
import dataclasses
import functools
import math
import random
import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from kernels import chips, dispatch, hopper, implementations, plans
from kernels.trans import api as trans
from kernels.trans.reference import Config as TransConfig
from kernels.trilinear import api as trilinear
from kernels.trilinear.reference import Config as TrilinearConfig
from kernels.two_simplicial import api as two_simplicial
from kernels.two_simplicial.reference import Config as TwoSimplicialConfig

FEW = (0, 1, 2, 5, 6, 8, 12, 14, 17, 22, 25, 26, 36)
"""Seeds of calls of every operation for either kind of chip, and of calls refused for each reason."""
MANY = 500
OPERATIONS = (two_simplicial.OPERATION, trans.OPERATION, trilinear.OPERATION)
WITHOUT_KERNELS = ("NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090", "NVIDIA B200", "TPU v4", "TPU7x")
KINDS = ("NVIDIA H100 80GB HBM3", "NVIDIA H200", "TPU v5 lite", "TPU v5", "TPU v6 lite")
DTYPES = ("float32", "bfloat16", "float16")
SUPPORTED = {
    ("two_simplicial_attention", "gpu"): {"float32", "bfloat16"},
    ("two_simplicial_attention", "tpu"): {"float32", "bfloat16"},
    ("trans", "gpu"): {"bfloat16", "float16"},
    ("trans", "tpu"): {"float32", "bfloat16"},
    ("trilinear_attention", "gpu"): {"bfloat16", "float16"},
    ("trilinear_attention", "tpu"): {"float32", "bfloat16"},
}
"""The dtypes that kernels are written for."""


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A call, the chip that it is for, and whether it must not be refused."""

    operation: dispatch.Operation
    config: Any
    avals: tuple[jax.ShapeDtypeStruct | None, ...]
    chip: chips.Chip
    inside: bool

    @property
    def backend(self) -> dispatch.Name:
        """The chip's kernels; of a chip without any those that come nearest."""
        return self.chip.backend or ("tpu" if self.chip.platform == "tpu" else "gpu")

    def __str__(self) -> str:
        shapes = ", ".join("-" if x is None else f"{x.dtype}{list(x.shape)}" for x in self.avals)
        return f"{self.operation.name}({shapes}) {self.config} on {self.chip.kind}"


def size(of: random.Random, least: int, most: int) -> int:
    """Draws a size: an endpoint, a power of two (or one more or less), or any, uniform in its logarithm."""
    kind = of.random()
    if kind < 0.2:
        return of.choice((least, most))
    drawn = math.exp(of.uniform(math.log(least), math.log(most + 1)))
    if kind < 0.5:
        drawn = 2 ** round(math.log2(drawn)) + of.choice((-1, 0, 0, 1))
    return min(most, max(least, int(drawn)))


def draw(seed: int) -> Drawn:
    """Draws a call and a chip."""
    of = random.Random(seed)
    kind = of.choice(KINDS) if of.random() < 0.92 else of.choice(WITHOUT_KERNELS)
    chip = chips.named(kind, "tpu" if kind.startswith("TPU") else "cuda")
    dtype = of.choices(DTYPES, (3, 4, 1))[0]
    features = 128 if of.random() < 0.9 else 400
    described = of.choice((_two_simplicial, _trans, _trilinear))(of, dtype, features)
    operation, config, shapes, mask, within = described
    avals = tuple(jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape in shapes)
    if operation is not trilinear.OPERATION:
        masked = None if mask is None else jax.ShapeDtypeStruct(mask, jnp.bool_)
        avals = (*avals, masked)
    dtypes = SUPPORTED.get((operation.name, chip.backend or ""), set())
    return Drawn(operation, config, avals, chip, within and dtype in dtypes)


def _mask(of, full):
    """A mask's shape, each axis full or 1; None half of the time."""
    return None if of.random() < 0.5 else tuple(of.choice((1, axis)) for axis in full)


def _two_simplicial(of, dtype, most):
    batch, heads = size(of, 1, 64), size(of, 1, 16)
    if of.random() < 0.1:
        batch = size(of, 5_000, 90_000) // heads + 1
    n = size(of, 1, 100_000 if batch * heads < 1000 else 300)
    m = size(of, 8, 4096 if of.random() < 0.9 else 9000)
    logit = of.choice(("unsigned", "trilinear", "signed"))
    depth, width, features = (size(of, 1, most) for _ in range(3))
    if logit == "signed":
        depth = max(3, depth // 3 * 3)
    config = TwoSimplicialConfig(logit=logit, scale=of.choice((1.0, 0.3)))
    key = (batch, m, heads, depth)
    shapes = ((batch, n, heads, depth), key, key, (batch, m, heads, width), (heads, features, width, width))
    mask = _mask(of, (batch, n, m, m))
    inside = max(depth, width, features) <= 128 and m <= 4096
    return two_simplicial.OPERATION, config, shapes, mask, inside


def _trans(of, dtype, most):
    batch, heads = size(of, 1, 128), size(of, 1, 64)
    rows, columns, outputs = (size(of, 1, 8192) for _ in range(3))
    causal = of.random() < 0.4
    if causal or of.random() < 0.4:
        rows = columns = outputs
    shapes = ((batch, heads, rows, columns), (batch, heads, columns, outputs))
    return trans.OPERATION, TransConfig(causal), shapes, _mask(of, shapes[0]), True


def _trilinear(of, dtype, most):
    batch, length, groups = size(of, 1, 64), size(of, 1, 16_384), size(of, 1, 16)
    heads, depth = groups * size(of, 1, 128), size(of, 1, most)
    causal = of.random() < 0.7
    window1, window2 = (of.choice((None, size(of, 1, 2048))) if causal else None for _ in range(2))
    config = TrilinearConfig(window1, window2, causal, 1 / math.sqrt(depth))
    query, key = (batch, length, heads, depth), (batch, length, groups, depth)
    return trilinear.OPERATION, config, (query, key, key, key, key), None, depth <= 128


@contextlib.contextmanager
def on(chip: chips.Chip):
    """Compilation is for this chip."""
    platform = "gpu" if chip.platform == "cuda" else chip.platform
    device = jax.sharding.AbstractDevice(device_kind=chip.kind, num_cores=chip.cores, platform=platform)
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device)):
        yield


def lower(drawn: Drawn, implementation: dispatch.Implementation) -> str:
    """Lowers output and gradients for the chip; returns the program's text."""
    count = drawn.operation.differentiable

    def both(*arrays):
        def forward(*x):
            return dispatch.run(
                drawn.operation, drawn.config, *x, *arrays[count:], implementation=implementation
            )

        out, pullback = jax.vjp(forward, *arrays[:count])
        return out, pullback(out)

    with on(drawn.chip):
        program = jax.jit(both).trace(*drawn.avals)
        return program.lower(lowering_platforms=(drawn.chip.platform,)).as_text()


KERNEL = {"gpu": "mosaic_gpu", "tpu": "tpu_custom_call"}
"""What a program that calls a hand-written kernel mentions."""
RESOURCE = r"chip: got|got dtype|registers: D = |needs [\d,]+|expected (at most|at least|bfloat16|float32)"


def refusal(drawn: Drawn) -> str | None:
    """Lowers a call and checks that its kernel is there; returns why it was refused, None if it was not."""
    try:
        text = lower(drawn, drawn.backend)
    except NotImplementedError as error:
        return str(error)
    assert KERNEL[drawn.backend] in text, drawn
    return None


def outcome(drawn: Drawn) -> str:
    """Checks a call and its plan: "lowered", or the name of what it was refused for."""
    reason = refusal(drawn)
    if reason is not None:
        assert not drawn.inside, f"{drawn}: {reason}"
        assert re.search(RESOURCE, reason), f"{drawn}: {reason}"
        return reason.partition(": ")[2].partition(":")[0]
    plan = drawn.operation.backend(drawn.backend).plan
    for direction in implementations.DIRECTIONS:
        launches = plan(direction, drawn.config, *drawn.avals, chip=drawn.chip).launches
        assert launches
        for launch in launches:
            assert launch.memory > 0, drawn
            assert plans.fits(drawn.chip, launch) is None, drawn
    return "lowered"


def tried(seeds) -> collections.Counter[str]:
    """Tries calls, and prints and returns how many were lowered, and refused for what."""
    counts = collections.Counter(outcome(draw(seed)) for seed in seeds)
    refused = sum(counts.values()) - counts["lowered"]
    print(f"{refused} of {sum(counts.values())} refused: {dict(counts)}")
    assert counts["lowered"] > refused
    return counts


def noted(monkeypatch, *names: str) -> dict[int, Any]:
    """Notes the rings of kernels for which methods are called while the kernels are traced."""
    rings = {}

    def note(method):
        @functools.wraps(method)
        def noting(ring, *arguments, **named):
            rings[id(ring.full)] = ring.full  # kept, so that no other gets its address
            return method(ring, *arguments, **named)

        return noting

    for name in names:
        monkeypatch.setattr(hopper.Ring, name, note(getattr(hopper.Ring, name)))
    return rings


def test_drawn_calls_lower_or_are_refused(monkeypatch):
    given, drained = noted(monkeypatch, "fill", "hand_over"), noted(monkeypatch, "drain")
    counts = tried(FEW)
    assert given.keys() == drained.keys(), "what nobody waited for outlives its program"
    assert len(given) > 20
    assert set(counts) == {"lowered", "chip", "query", "kernel_logits", "kernel_logits, premise", "arrays"}
    lowered = {(of.operation.name, of.backend) for of in map(draw, FEW) if of.inside}
    assert lowered == set(SUPPORTED)


@pytest.mark.slow  # many draws; some by default
@pytest.mark.parametrize("part", range(11))
def test_many_drawn_calls_lower_or_are_refused(part):
    tried(range(1000 + part * MANY // 10, 1000 + (part + 1) * MANY // 10) if part < 10 else range(40))


def test_draws_reach_all_that_they_should():
    found = [draw(seed) for seed in range(MANY)]
    calls = {(d.operation.name, d.backend, d.inside) for d in found}
    assert len(calls) == 12
    assert 0.5 < sum(d.inside for d in found) / MANY < 0.95
    two = [d for d in found if d.operation is two_simplicial.OPERATION]
    assert {d.config.logit for d in two} == {"unsigned", "trilinear", "signed"}
    assert {d.chip.kind for d in found} == {*KINDS, *WITHOUT_KERNELS}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_the_first_axis_is_the_batch_where_an_operation_says_so(operation):
    calls = (draw(seed) for seed in range(MANY) if draw(seed).operation is operation)
    call = next(call for call in calls if not call.avals[operation.differentiable :] or None in call.avals)

    def batch(times):
        avals = [
            x and jax.ShapeDtypeStruct((times * x.shape[0], *x.shape[1:]) if has_batch else x.shape, x.dtype)
            for x, has_batch in zip(call.avals, operation.batch_axis, strict=True)
        ]
        return jax.eval_shape(functools.partial(operation.reference, call.config), *avals)[0].shape[0]

    assert batch(3) == 3 * batch(1)


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[3], *WITHOUT_KERNELS])
def test_by_default_and_with_xla_every_call_lowers(kind):
    chip = chips.named(kind, "tpu" if kind.startswith("TPU") else "cuda")
    drawn = draw(next(s for s in range(99) if not draw(s).inside and draw(s).operation is trans.OPERATION))
    drawn = dataclasses.replace(drawn, chip=chip)
    for implementation in (None, (drawn.backend, "xla")):
        lower(drawn, implementation)
