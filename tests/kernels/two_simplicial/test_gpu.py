"""The Hopper kernels in Pallas' GPU interpret mode against the float64 reference, and what needs no GPU.

Interpreted are tile loops, indices, pipelines, copies, masks and the arithmetic. Replaced by plain products
and functions are matrix instructions with an operand in registers and the special functions. That the
kernels compile to machine code is shown by `make aot`.
"""

import functools
from typing import Any

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from kernels.two_simplicial import gpu, gpu_operands, gpu_tiles, pairwise, reference, shapes
from kernels.two_simplicial.reference import Config
from kernels.two_simplicial.shapes import Shape
from tests.kernels.two_simplicial import cases

# Two tiles of queries; with NARROW blocks two of k and five steps of j; each with a tail.
TILES = Shape("tiles", batch=1, heads=2, queries=70, keys=18, features=6, value_features=4, out_features=7)
# Two examples of two heads, for masks.
EXAMPLES = Shape(
    "examples", batch=2, heads=2, queries=9, keys=10, features=6, value_features=4, out_features=7
)
NARROW = {"k": 16, "j": 4}
TOLERANCE = {np.float32: 1e-5, jnp.bfloat16: 2e-2}
UNSIGNED, TRILINEAR, SIGNED = cases.CONFIGS


def check(config, arrays, tolerance, blocks=None, *, floor=0.1):
    """Values and gradients against the reference."""
    dout = cases.cotangent(arrays)
    out, lse = gpu.forward(config, *arrays, blocks=blocks, interpret=True)
    saved: Any = (*arrays, out, lse, dout)
    gradients = gpu.backward(config, *saved, blocks=blocks, interpret=True)
    assert out.dtype == arrays[3].dtype
    assert lse.dtype == jnp.float32
    assert [g.dtype for g in gradients] == [a.dtype for a in arrays[:5]]
    cases.check_answer((out, lse, gradients), cases.expected(config, arrays, dout), tolerance, floor=floor)


@pytest.mark.slow
def test_several_tiles_of_everything():
    check(UNSIGNED, cases.arrays(TILES), 1e-5, NARROW)


@pytest.mark.slow
def test_linear_logits_over_several_tiles():
    check(TRILINEAR, cases.arrays(TILES, dtype=jnp.bfloat16), 2e-2, NARROW)


@pytest.mark.slow
def test_mask_of_padding():
    check(SIGNED, cases.arrays(EXAMPLES, mask="padding"), 1e-5)


@pytest.mark.slow
def test_mask_of_queries():
    check(UNSIGNED, cases.arrays(EXAMPLES, mask="queries", dtype=jnp.bfloat16), 2e-2)


@pytest.mark.slow
def test_mask_of_triples_with_keys_in_slices(monkeypatch):
    """A slice for each pipeline step; some allow nothing to a query, and some queries nothing at all."""
    monkeypatch.setattr(gpu_operands, "CHUNK_BYTES", 1)
    arrays = cases.arrays(EXAMPLES, mask="some rows", dtype=jnp.bfloat16)
    problem = gpu_operands.prepare(UNSIGNED, *arrays, blocks={**NARROW, "stages": 2}, interpret=True)
    assert problem.pieces.key1.shape[:3] == (3, 2, 4)
    check(UNSIGNED, arrays, 2e-2, NARROW)


@pytest.mark.slow
def test_zero_vectors_have_zero_gradients():
    arrays = cases.arrays(EXAMPLES, kind="zeros", dtype=jnp.bfloat16)
    check(UNSIGNED, arrays, 2e-2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [UNSIGNED, pytest.param(SIGNED, marks=pytest.mark.slow)], ids=lambda c: c.logit
)
def test_copies_and_loads_do_not_race(config, monkeypatch):
    checked = functools.partial(plgpu.InterpretGPUParams, detect_races=True)  # which raises an error
    monkeypatch.setattr(plgpu, "InterpretGPUParams", checked)
    shape = Shape("races", batch=1, heads=1, queries=192, keys=20, features=3, value_features=2)
    blocks = {"k": 32, "j": 2}
    check(config, cases.arrays(shape, dtype=jnp.bfloat16), 2e-2, blocks)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda t: t.__name__)
@pytest.mark.parametrize("config", cases.CONFIGS, ids=lambda c: c.logit)
@pytest.mark.parametrize("shape", [shapes.ODD, shapes.WIDE, shapes.DEEP], ids=str)
def test_all_shapes(shape, config, dtype):
    check(config, cases.arrays(shape, dtype=dtype), TOLERANCE[dtype])


@pytest.mark.slow
@pytest.mark.parametrize("mask", cases.MASKS)
@pytest.mark.parametrize("config", cases.CONFIGS, ids=lambda c: c.logit)
def test_all_masks(config, mask):
    check(config, cases.arrays(shapes.ODD, mask=mask), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", cases.DEGENERATE)
@pytest.mark.parametrize("config", cases.CONFIGS, ids=lambda c: c.logit)
def test_all_degenerate_vectors(config, kind):
    check(config, cases.arrays(TILES, kind=kind), 2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["forward", "backward"])
def test_all_block_sizes(which):
    shape = Shape("blocks", batch=1, heads=1, queries=70, keys=64, features=6)
    arrays = cases.arrays(shape, dtype=jnp.bfloat16)
    for blocks in gpu.block_candidates(UNSIGNED, *arrays)[which]:
        if which == "forward":
            out, lse = gpu.forward(UNSIGNED, *arrays, blocks=blocks, interpret=True)
            want = cases.expected(UNSIGNED, arrays, cases.cotangent(arrays))
            cases.check(out, want.out, 2e-2)
            cases.check(lse, want.lse, 1e-5)
        else:
            check(UNSIGNED, arrays, 2e-2, blocks)


@pytest.mark.slow
def test_dot_products_and_their_pullback_are_those_of_the_reference():
    config = Config(scale=0.7, eps=1e-3)
    query, key1, key2, *_ = cases.arrays(shapes.TINY)
    with jax.enable_x64(True):
        query, key1, key2 = (jnp.asarray(np.asarray(a, np.float64)) for a in (query, key1, key2))
        query = query.at[0, 1].set(0)
        found = pairwise.products(config, query, key1, key2)
        x, z, y = found.x.swapaxes(2, 3)[..., None], found.z[:, :, :, None], found.y[:, :, None]
        bb, cc = found.bb[:, :, None, :, None], found.cc[:, :, None, None]
        s, e = found.s[..., None, None], found.e[..., None, None]
        t = jnp.sqrt((y - x * z) ** 2 + x * x * cc + z * z * (bb - x * x) + e)
        want, pull = jax.vjp(lambda *a: reference.logits(config, *a), query, key1, key2)
        np.testing.assert_allclose(s * t, want, rtol=1e-12)
        dlogit = jnp.asarray(np.random.default_rng(0).standard_normal(want.shape))
        g = dlogit * s / t
        gradients = pairwise.Gradients(
            x=(g * (x * cc - y * z)).sum(-1).swapaxes(2, 3),
            z=(g * (z * bb - x * y)).sum(3),
            y=(g * (y - x * z)).sum(2),
            aa=(g * y * y).sum((3, 4)),
            bb=(g * z * z).sum((2, 4)),
            cc=(g * x * x).sum((2, 3)),
        )
        for got, wanted in zip(pairwise.pullback(query, key1, key2, gradients), pull(dlogit), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-11)


def test_parts_of_a_number_add_up_to_it():
    numbers = jnp.asarray(np.random.default_rng(0).standard_normal(1000), jnp.float32)
    for parts, bits in ((1, 8), (2, 16), (3, 24)):
        total = sum(part.astype(jnp.float32) for part in gpu_tiles.split(numbers, parts))
        assert float(jnp.max(jnp.abs(total - numbers) / jnp.abs(numbers))) <= 2.0**-bits
    assert gpu_tiles.cross("ab", "xyz") == [("a", "x"), ("a", "y"), ("a", "z"), ("b", "x"), ("b", "y")]


def structs(shape: Shape, dtype=jnp.float32, mask: tuple[int, ...] | None = None) -> list:
    """Arguments of `forward` as shapes."""
    b, n, m, h, d = shape.batch, shape.queries, shape.keys, shape.heads, shape.features
    sizes = (b, n, h, d), (b, m, h, d), (b, m, h, d), (b, m, h, shape.e), (h, shape.f, shape.e, shape.e)
    arrays = [jax.ShapeDtypeStruct(size, dtype) for size in sizes]
    return [*arrays, None if mask is None else jax.ShapeDtypeStruct(mask, jnp.bool_)]


@pytest.mark.parametrize(
    ("reason", "shape", "dtype", "config"),
    [
        ("query: got dtype float16", TILES, jnp.float16, UNSIGNED),
        ("M: got 2 keys, expected at least 8", shapes.AGENT, jnp.float32, UNSIGNED),
        ("M: got 5000", Shape("", 1, 1, 1, 5000, 6), jnp.float32, UNSIGNED),
        ("F: got 200", Shape("", 1, 1, 1, 8, 6, 4, 200), jnp.float32, UNSIGNED),
        ("D: got 300", Shape("", 1, 1, 1, 8, 300, 4, 4), jnp.float32, SIGNED),
        ("scale: got -1.0", TILES, jnp.float32, Config(scale=-1.0)),
    ],
)
def test_what_is_not_supported_is_said(reason, shape, dtype, config):
    arrays = structs(shape, dtype)
    assert str(gpu.unsupported(config, *arrays)).startswith(reason)
    with pytest.raises(NotImplementedError, match=reason.replace(".", r"\.")):
        jax.eval_shape(functools.partial(gpu.forward, config), *arrays)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda t: t.__name__)
@pytest.mark.parametrize("shape", [shapes.VIRTUAL, shapes.VIRTUAL_64, shapes.FULL], ids=str)
def test_real_shapes_are_supported(shape, dtype):
    for config in cases.CONFIGS:
        assert gpu.unsupported(config, *structs(shape, dtype)) is None


@pytest.mark.parametrize(("config", "dtype"), [(UNSIGNED, jnp.bfloat16), (SIGNED, np.float32)], ids=str)
def test_both_passes_lower_for_cuda_and_keep_no_array_over_triples(config, dtype):
    shape = Shape("", 2, 4, 1000, 30, 48)
    arrays = structs(shape, dtype)
    out = jax.ShapeDtypeStruct((shape.batch, shape.queries, shape.heads, shape.f), dtype)
    lse = jax.ShapeDtypeStruct((shape.batch, shape.heads, shape.queries), jnp.float32)
    for function, arguments, kernels in ((gpu.forward, [], 1), (gpu.backward, [out, lse, out], 2)):
        lowered = export.export(jax.jit(functools.partial(function, config)), platforms=["cuda"])(
            *arrays, *arguments
        )
        text = lowered.mlir_module()
        assert text.count("stablehlo.custom_call @mosaic_gpu") == kernels
        largest = max(np.prod(v.shape) for v in _arrays(lowered, function, config, (*arrays, *arguments)))
        assert largest < shape.triples / 4


def _arrays(_, function, config, arguments):
    """Every array of the traced program outside the kernels."""
    found = []

    def visit(jaxpr):
        for equation in jaxpr.eqns:
            found.extend(v.aval for v in equation.outvars if hasattr(v.aval, "shape"))
            if equation.primitive.name not in ("mpmd_map", "core_map", "pallas_call", "run_state"):
                for inner in jax.tree.leaves(
                    list(equation.params.values()),
                    is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr"),
                ):
                    inner = getattr(inner, "jaxpr", inner)
                    if hasattr(inner, "eqns"):
                        visit(inner)

    visit(jax.make_jaxpr(functools.partial(function, config))(*arguments).jaxpr)
    return found
