"""Measures training steps per second of every cell, against the same model with naive powers.

    python -m benchmarks.llrnn --out=results/llrnn/speed.json

The naive model is the same cell with other implementations of its operations: it forms the powers of an
operator as matrices and sums them, and represents rotations and reflections by matrices. Its outputs are
first checked to be equal. A training step is one compiled call with forward pass, backward pass and SGD
update over a whole sequence. The two models alternate in one process; the ratio is a median over neighbouring
blocks, with minimum and maximum.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import cast
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import flags

from benchmarks import launching, timing
from llrnn import model as models
from llrnn.cells import recurrent
from llrnn.memory import operators as operator_memory
from llrnn.memory import rings

BATCH, STEPS, INPUTS, OUTPUTS = 64, 32, 10, 10

CELLS = {
    "elman": {"features": 128},
    "second_order": {"features": 128},
    "multiplicative": {"features": 128},
    "higher_order": {"features": 128, "max_power": 16},
    "ntm": {"features": 100, "memory_size": 128, "memory_width": 20},
    "ntm, powers 0 -1 1": {"features": 100, "memory_size": 128, "memory_width": 20, "powers": (0, -1, 1)},
    "dihedral_ntm": {"features": 100, "memory_size": 128, "memory_width": 20},
    "operator_ntm": {"features": 32, "memory_size": 16},
    "pattern_ntm": {"features": 100},
    "multiple_pattern_ntm": {"features": 100},
    "polynomial_ntm": {"features": 100},
    "lstm": {"features": 128},
}
NO_POWERS = ("elman", "second_order", "multiplicative", "lstm")


def rotation(locations: int, power: int) -> np.ndarray:
    """Returns the matrix R^power, computed by multiplication."""
    once = np.roll(np.eye(locations, dtype=np.float32), 1 if power >= 0 else -1, axis=0)
    return np.linalg.matrix_power(once, abs(power))


def naive_rotate(address, coefficients, powers):
    """Computes `rings.rotate` with a matrix for every power."""
    matrices = jnp.asarray(np.stack([rotation(address.shape[-1], power) for power in powers]))
    return jnp.einsum("...k,kij,...j->...i", coefficients, matrices, address)


def naive_polynomial(coefficients, matrix, vector):
    """Computes sum_i p_i A^i v by forming every A^i."""
    power = jnp.broadcast_to(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape)
    powers = [power]
    for _ in range(coefficients.shape[-1] - 1):
        powers.append(powers[-1] @ matrix)
    total = jnp.einsum("...k,k...ij->...ij", coefficients, jnp.stack(powers))
    return jnp.einsum("...ij,...j->...i", total, vector)


def naive_power_superposition(coefficients, operator, vector):
    """Computes `power_superposition` by forming the operator and all of its powers."""
    size = vector.shape[-1]
    basis = jnp.broadcast_to(jnp.eye(size, dtype=vector.dtype), (*vector.shape, size))
    # The operator acts on [*B, D]; the columns of the identity go through it by vmap.
    matrix = jax.vmap(operator, in_axes=-1, out_axes=-1)(basis)
    return naive_polynomial(coefficients, matrix, vector)


def naive_second_order_powers(coefficients, operators, inputs, vector):
    """Computes `second_order_powers` by forming all powers of the operator."""
    return naive_polynomial(coefficients, jnp.einsum("...k,kij->...ij", inputs, operators), vector)


def naive_words(address, coefficients, words, step=1):
    """Computes `rings.move_by_symmetries` with every word as the product of its digits' matrices."""
    size = address.shape[-1]
    digits = {"0": rotation(size, step), "1": np.roll(np.eye(size, dtype=np.float32)[::-1], 1, axis=0)}
    products = []
    for word in words:
        product = np.eye(size, dtype=np.float32)
        for digit in word:
            product = digits[digit] @ product
        products.append(product)
    return jnp.einsum("...k,kij,...j->...i", coefficients, jnp.asarray(np.stack(products)), address)


@contextlib.contextmanager
def naive() -> Iterator[None]:
    """Makes cells that are traced in this context form their powers."""
    with contextlib.ExitStack() as stack:
        for module, name, plain in (
            (recurrent, "second_order_powers", naive_second_order_powers),
            (operator_memory, "matrix_power_superposition", naive_polynomial),
            (rings, "power_superposition", naive_power_superposition),
            (rings, "rotate", naive_rotate),
            (rings, "move_by_symmetries", naive_words),
        ):
            stack.enter_context(mock.patch.object(module, name, plain))
        yield


def training_step(model: models.RecurrentModel, params, inputs, targets):
    """Returns a compiled training step and the seconds its compilation took."""

    def loss(params):
        logits = cast(models.RecurrentOutput, model.apply({"params": params}, inputs)).logits
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

    def step(params):
        value, gradient = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, gradient), value

    start = time.perf_counter()
    compiled = jax.jit(step).lower(params).compile()
    seconds = time.perf_counter() - start
    return compiled, seconds


def measure(name: str, options: dict, blocks: int) -> dict:
    """Measures the row of one cell."""
    key = jax.random.key(0)
    inputs = jax.random.normal(key, (BATCH, STEPS, INPUTS))
    targets = jax.random.randint(key, (BATCH, STEPS), 0, OUTPUTS)
    model = models.RecurrentModel(models.make_cell(name.split(",")[0], **options), OUTPUTS)
    params = model.init(key, inputs)["params"]
    ours, seconds = training_step(model, params, inputs, targets)
    functions = {"ours": lambda: ours(params)}
    row = {"cell": name, **options, "compile_seconds": seconds}
    if name not in NO_POWERS:
        with naive():
            other, row["naive_compile_seconds"] = training_step(model, params, inputs, targets)
        for mine, theirs in zip(jax.tree.leaves(ours(params)), jax.tree.leaves(other(params)), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)
        functions["naive"] = lambda: other(params)
    times = timing.alternate(functions, blocks=blocks)
    row["steps_per_second"] = 1 / np.median(times["ours"])
    if "naive" in times:
        row["naive_steps_per_second"] = 1 / np.median(times["naive"])
        row["speedup"] = timing.ratio(times["naive"], times["ours"])
    return row


def format_row(row: dict) -> str:
    """Formats a row as one line."""
    line = f"{row['cell']:22} {row['steps_per_second']:8.1f} steps/s"
    if "speedup" in row:
        line += (
            f", naive {row['naive_steps_per_second']:8.2f}: {timing.shown(row['speedup'], 1)} times as fast"
        )
    return line


def main() -> None:
    """Runs the program with the values of its flags."""
    blocks = flags.FLAGS.blocks
    rows = (measure(name, options, blocks) for name, options in CELLS.items())
    launching.record(
        rows, format_row, flags.FLAGS.out, "python -m benchmarks.llrnn", batch=BATCH, steps=STEPS
    )


if __name__ == "__main__":
    flags.DEFINE_string("out", "results/llrnn/speed.json", "output file; empty to write none")
    flags.DEFINE_integer("blocks", 7, "timing blocks per model", lower_bound=1)
    launching.run(main)
