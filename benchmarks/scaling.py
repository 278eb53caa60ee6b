"""Measures the overhead of a training step on 1, 2, 4 and 8 CPU devices of this machine.

    python -m benchmarks.scaling

The work per device is constant. All devices share the machine's cores, so D devices do D times the work.
There are two cases, each run in every parallel mode (`--parallel`):

- `nothing`: a model whose arithmetic takes microseconds, so that its step is all overhead: starting the
  program on every device, exchanging the gradient, and the optimizer.
- `quick`: the mathematics model of the preset `quick` with 8 questions per device. Its overhead is its time
  minus D times that of one device, which already uses all cores. It is negative if several devices use the
  cores better than one.

Each number of devices runs in its own process, because XLA fixes it at start-up; the processes alternate.
Times are medians over rounds, with minimum and maximum.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import flags

from benchmarks import launching, timing
from experiments import mathematics, runtime
from experiments.mathematics import train
from experiments.runtime.mesh import PARALLEL
from experiments.runtime.training import Program, Task

COUNTS = (1, 2, 4, 8)
ROWS = 8
"""Number of examples per device."""
TARGET = 2e-3
"""Maximum overhead per step in seconds."""


def nothing(devices: int) -> tuple[Task, dict[str, Any]]:
    """Returns a task with 16 thousand parameters whose loss is a product of sums, and a batch."""

    def loss(params, batch, key):
        total = jnp.sum(batch["x"]) * jnp.sum(params["w"])
        return runtime.Sums(total, batch["x"].size)

    task = Task(0, ROWS * devices, lambda key: {"w": jnp.zeros((256, 64))}, loss, optax.sgd(0.1))
    return task, {"x": np.ones(ROWS * devices, np.float32)}


def quick(devices: int) -> tuple[Task, dict[str, Any]]:
    """Returns the task of the preset `mathematics:quick`, and a batch with 32 source and 8 target symbols."""
    config = mathematics.get_config("quick")
    model = config.model.make()
    rng = np.random.default_rng(0)

    def symbols(length):
        return rng.integers(3, model.vocab_size, (ROWS * devices, length)).astype(np.int32)

    task = Task(
        0,
        ROWS * devices,
        train.make_init(model),
        train.make_loss(model),
        config.make_optimizer(),
    )
    return task, {"source": symbols(32), "target": symbols(8)}


CASES = {"nothing": nothing, "quick": quick}


def step_seconds(case: str, parallel: str, seconds: float = 0.5) -> float:
    """Measures the seconds per step on all devices of this process, running steps one after the other."""
    task, batch = CASES[case](jax.device_count())
    program = Program(task, parallel)
    state = [program.place(program.initial())]
    placed = program.place_batch(batch)
    step = program.compile_step(state[0], placed)

    def call():
        state[0], trace = step(state[0], placed, program.key)
        return trace

    return min(timing.alternate({case: call}, blocks=3, block_seconds=seconds / 3)[case])


def on_devices(count: int, compiled: str = "") -> dict[str, dict[str, float]]:
    """Returns `step_seconds` of all cases and parallel modes, in a new process with `count` devices.

    `compiled` is the folder of JAX's compilation cache.
    """
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": compiled,
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}",
    }
    command = [sys.executable, "-m", "benchmarks.scaling", "--here"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"measurement on {count} devices failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def tabulate(rounds: Sequence[dict[int, dict[str, dict[str, float]]]]) -> list[dict[str, Any]]:
    """Returns a row per case, parallel mode and number of devices: seconds per step, and the overhead."""
    rows = []
    for case in CASES:
        for parallel in PARALLEL:
            for count in rounds[0]:
                seconds = [one[count][case][parallel] for one in rounds]
                work = [0.0 if case == "nothing" else count * one[1][case][parallel] for one in rounds]
                over = [s - w for s, w in zip(seconds, work, strict=True)]
                row: dict[str, Any] = {
                    "case": case,
                    "parallel": parallel,
                    "devices": count,
                    "rows": count * ROWS,
                    "step_seconds": statistics.median(seconds),
                }
                if case == "nothing" or count > 1:
                    row["overhead_seconds"] = timing.spread(over)
                rows.append(row)
    return rows


def format_row(row: dict[str, Any]) -> str:
    """Formats a row as one line."""
    line = (
        f"{row['case']:8} {row['parallel']:10} {row['devices']} devices: {1e3 * row['step_seconds']:8.2f} ms"
    )
    if over := row.get("overhead_seconds"):
        within = "within" if over["median"] < TARGET else "ABOVE"
        milliseconds = timing.shown({name: 1e3 * over[name] for name in ("median", "least", "greatest")})
        line += f", overhead {milliseconds} ms, {within} {1e3 * TARGET:.0f} ms"
    return line


def main() -> None:
    """Runs the program with the values of its flags."""
    if flags.FLAGS.here:
        print(json.dumps({case: {way: step_seconds(case, way) for way in PARALLEL} for case in CASES}))
        return
    with tempfile.TemporaryDirectory() as compiled:
        rounds = []
        for number in range(1, flags.FLAGS.rounds + 1):
            rounds.append({})
            for count in COUNTS:
                print(f"round {number} of {flags.FLAGS.rounds}: {count} devices", flush=True)
                rounds[-1][count] = on_devices(count, compiled)
    about = {"target_overhead_seconds": TARGET, "rounds": len(rounds)}
    launching.record(tabulate(rounds), format_row, flags.FLAGS.out, "python -m benchmarks.scaling", **about)


if __name__ == "__main__":
    flags.DEFINE_string("out", "results/scaling/speed.json", "output file; empty to write none")
    flags.DEFINE_integer("rounds", 3, "rounds over all numbers of devices", lower_bound=1)
    flags.DEFINE_bool("here", False, "measure on the devices of this process and print JSON")
    launching.run(main)
