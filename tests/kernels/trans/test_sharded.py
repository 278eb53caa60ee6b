"""trans on eight devices: rows round a ring, batch and heads in shard_map, and cut up by the compiler."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels.trans.sharded import trans_sharded

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
WAYS = [
    "ring, full",
    "ring, full, mask",
    *(
        f"{way}, causal{mask}"
        for way, masks in {
            "ring": ("", ", padding", ", mask"),
            "ring and data": ("",),
            "shards": ("",),
            "compiler, rows": ("",),
            "compiler, heads": ("",),
        }.items()
        for mask in masks
    ),
    "ring, unchecked",
    "shards, one mask for all",
    "second order",
]


@pytest.fixture(scope="module")
def errors():
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # what is compiled runs once
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-W", "error", str(HERE / "on_eight_devices.py")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found.pop("devices") == 8
    return found


def test_every_way_was_tried(errors):
    assert set(errors) == {*WAYS, "ring, bfloat16"}


@pytest.mark.parametrize("way", WAYS)
def test_values_and_gradients(errors, way):
    assert errors[way]
    assert all(one < 2e-6 for one in errors[way].values()), errors[way]


def test_bfloat16_is_summed_in_float32(errors):
    """Eight pieces a row, and a gradient that eight devices add to."""
    assert all(one < 6e-3 for one in errors["ring, bfloat16"].values()), errors["ring, bfloat16"]


def on_one_device(function, *arrays):
    """A ring of one: shapes are checked as on any."""
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.P(None, "rows")
    return jax.shard_map(function, mesh=mesh, in_specs=(rows,) * len(arrays), out_specs=rows)(*arrays)


def ring(*arrays, **options):
    return trans_sharded(*arrays, axis_name="rows", **options)


def test_a_ring_of_one_is_the_operator_itself():
    kernel_logits, premise = np.random.default_rng(0).normal(size=(2, 3, 5, 5)).astype("float32")
    from_ring = on_one_device(ring, kernel_logits, premise)
    expected = np.exp(kernel_logits) / np.exp(kernel_logits).sum(-1, keepdims=True) @ premise
    np.testing.assert_allclose(from_ring, expected, rtol=2e-6, atol=2e-6)


def test_tangents_of_a_ring_of_one_are_those_of_the_operator_itself():
    kernel_logits, premise = np.random.default_rng(0).normal(size=(2, 3, 5, 5)).astype("float32")

    def pushed(function):
        return jax.jvp(function, (kernel_logits, premise), (premise, kernel_logits))

    expected = pushed(lambda k, p: jax.nn.softmax(k) @ p)
    found = pushed(functools.partial(on_one_device, ring))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=2e-6), found, expected)


def test_what_is_masked_may_be_anything():
    """Logits, and rows of the premise that nobody attends to; of a ring of one, derivatives too."""
    kernel_logits, premise = np.random.default_rng(0).normal(size=(2, 3, 5, 5)).astype("float32")
    mask = np.broadcast_to(np.arange(5) < 3, kernel_logits.shape)

    def moved(logit, row):
        rows = functools.partial(on_one_device, lambda k, p, m: ring(k, p, mask=m))
        given = np.where(mask, kernel_logits, logit), np.where(np.arange(5)[:, None] < 3, premise, row)
        values = jax.jvp(lambda k, p: rows(k, p, mask), given, given)
        return *values, *jax.vjp(lambda k, p: rows(k, p, mask), *given)[1](values[1])

    found, expected = moved(1e4, np.nan), moved(0, 0)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert np.abs(found[1]).min() > 0


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        (((2, 5, 4), (2, 5, 5)), {}, r"kernel_logits: got shape \(2, 5, 4\), expected .* A = 1 X"),
        (((2, 5, 5), (2, 4, 5)), {}, r"premise: got shape \(2, 4, 5\), expected \[..., H, X, Y\]"),
        (((2, 5, 5), (3, 5, 5)), {}, r"premise: got shape \(3, 5, 5\)"),
        (((2, 5, 5), (5, 5)), {}, r"premise: got shape \(5, 5\).*at least 3 axes"),
        (((5, 5), (5, 5)), {}, r"kernel_logits: got shape \(5, 5\).*at least 3 axes"),
        (((2, 5, 5), (2, 5, 5)), {"mask": np.zeros((2, 5, 4), bool)}, r"mask: got shape \(2, 5, 4\)"),
        (((2, 5, 5), (2, 5, 5)), {"mask": np.zeros((2, 5, 5))}, r"mask: got dtype float.*expected bool"),
    ],
)
def test_what_does_not_fit_is_named(shapes, options, message):
    arrays = [jnp.zeros(shape) for shape in shapes]
    with pytest.raises(ValueError, match=message):
        on_one_device(lambda *arrays: ring(*arrays, **options), *arrays)


def test_nobody_attends():
    assert on_one_device(ring, jnp.zeros((0, 2, 3, 3)), jnp.zeros((0, 2, 3, 4))).shape == (0, 2, 3, 4)
