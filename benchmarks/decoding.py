"""Measures a cached decoding step against computing the whole sequence again, for one layer.

    python -m benchmarks.decoding --out=results/decoding/cpu.json

The sequence has N positions, the layer 4 heads in 2 groups and windows of 32 and 512. Both ways compute the
output of the last position; their results are first compared. A step updates its cache in place.
"""

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks import launching, timing
from simplicial import RotaryAttention, TrilinearAttention

WIDTH, HEADS, GROUPS, WINDOWS = 128, 4, 2, (32, 512)
LAYERS = {
    "trilinear": TrilinearAttention(HEADS, 128, GROUPS, window1=WINDOWS[0], window2=WINDOWS[1]),
    "signed": TrilinearAttention(HEADS, 96, GROUPS, window1=WINDOWS[0], window2=WINDOWS[1], logit="signed"),
    "dot product": RotaryAttention(HEADS, 128, GROUPS, window=WINDOWS[1]),
}
TOLERANCE = 1e-5


def measure(name: str, length: int, blocks: int) -> dict:
    """Measures the row of one layer.

    Raises:
        ValueError: the step's output is not that of the whole sequence.
    """
    layer = LAYERS[name]
    inputs = jax.random.normal(jax.random.key(0), (1, length, WIDTH))
    decoder = layer.clone(decode=True)
    variables = jax.jit(decoder.init)(jax.random.key(1), inputs)
    params = {"params": variables["params"]}
    whole = jax.jit(lambda inputs: layer.apply(params, inputs)[:, -1:])  # pyrefly: ignore[bad-index]

    def read(cache, inputs):
        return decoder.apply({**params, **cache}, inputs, mutable=["cache"])

    step = jax.jit(read, donate_argnums=0)
    _, cache = jax.jit(read)({"cache": variables["cache"]}, inputs[:, :-1])
    last = inputs[:, -1:]
    difference = float(jnp.abs(whole(inputs) - jax.jit(read)(cache, last)[0]).max())
    if not difference < TOLERANCE:
        raise ValueError(f"{name}: a step differs from the whole sequence by {difference:.1e}")

    def decode():
        nonlocal cache
        out, cache = step(cache, last)  # the next position, at the same cost
        return out

    times = timing.alternate({"whole": lambda: whole(inputs), "step": decode}, blocks=blocks)
    return {
        "layer": name,
        "difference": difference,
        "whole_ms": 1e3 * float(np.median(times["whole"])),
        "step_ms": 1e3 * float(np.median(times["step"])),
        "speedup": timing.ratio(times["whole"], times["step"]),
    }


def format_row(row: dict) -> str:
    """Formats a row as one line."""
    return (
        f"{row['layer']:12} whole {row['whole_ms']:9.2f} ms, step {row['step_ms']:7.3f} ms: "
        f"{timing.shown(row['speedup'], 0)} times as fast"
    )


def main() -> None:
    """Runs the program with the values of its flags."""
    values = flags.FLAGS
    rows = (measure(name, values.length, values.blocks) for name in LAYERS)
    launching.record(
        rows,
        format_row,
        values.out,
        "python -m benchmarks.decoding",
        length=values.length,
        heads=HEADS,
        groups=GROUPS,
        windows=WINDOWS,
    )


if __name__ == "__main__":
    flags.DEFINE_string("out", "results/decoding/cpu.json", "output file; empty to write none")
    flags.DEFINE_integer("length", 4096, "N, positions of the sequence", lower_bound=2)
    flags.DEFINE_integer("blocks", 5, "timing blocks per layer", lower_bound=1)
    launching.run(main)
