"""Steps a second of training in bridge BoxWorld, acting and learning together, of both agents.

    python -m benchmarks.boxworld_training --out=results/boxworld/training_speed.json

Three ways, in blocks that take turns: `paper`, 512 environments x 40 steps cut into 16 updates, as many
updates as the paper's; `seeds`, several such runs side by side in one program (steps of all together); and
`large`, as many environments in one update (on CPUs these are left out, where `paper` fills the cores). On an
accelerator each is also measured in bfloat16. The paper's own figures are 19,000 (relational) and 14,000
(simplicial) steps/s on a P100 with 192 virtual CPUs. A step is counted with its picture, its action, its
part of the gradient and of the update. Utilisation is what the agent's contractions, once to act and forward
and backward to learn, would take at the measured rate of large matrix products of the same type, over what a
step takes; the peak of memory is the compiler's.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import app, flags, logging

from benchmarks import machine, steps, timing
from experiments.boxworld import config as presets
from experiments.boxworld.config import Config
from experiments.boxworld.engine import Impala, make_policy

COMMAND = "python -m benchmarks.boxworld_training"
OUT = "results/boxworld/training_speed.json"
AGENTS = ("relational", "simplicial")
PUBLISHED = {"relational": 1.9e4, "simplicial": 1.4e4}
"""Steps/s of the authors, on a P100 with 192 virtual CPUs."""


def config_of(agent: str, dtype: str, **fields: Any) -> Config:
    """The paper's settings with another agent, type and sizes."""
    config = dataclasses.replace(presets.paper(), **fields)
    config.agent = dataclasses.replace(config.agent, kind=agent, dtype=dtype)
    return config


def cases(platform: str, seeds: int, large: int) -> dict[str, Config]:
    """What is measured on a platform, by name."""
    found = {}
    for dtype in ("float32",) if platform == "cpu" else ("float32", "bfloat16"):
        for agent in AGENTS:
            found[f"{agent}, paper, {dtype}"] = config_of(agent, dtype)
            if platform != "cpu":
                found[f"{agent}, {seeds} seeds, {dtype}"] = config_of(agent, dtype, seeds=seeds)
                found[f"{agent}, large, {dtype}"] = config_of(agent, dtype, batch_size=large, updates=1)
    return found


def training(config: Config, iterations: int) -> tuple[Callable[[], Any], int | None]:
    """A call that makes some iterations more, compiled, and the program's peak of memory in bytes."""
    engine = Impala(config)
    carry = [engine.place(engine.initial())]
    engine.prepare(carry[0], 0, iterations)
    program: Any = engine._programs[iterations]

    def run():
        carry[0], report = engine.advance(carry[0], 0, iterations)
        if not report.finite.all():
            raise FloatingPointError("training is not finite")
        return report.grad_norm

    return run, steps.peak_bytes(program.memory_analysis())


def operations(config: Config) -> int | None:
    """Multiplications and additions of the agent's contractions for a step of one environment.

    Once to act, and forward and backward to learn from it.
    """
    board, policy = config.board.make(), make_policy(config)
    picture = jax.ShapeDtypeStruct((1, board.rows, board.cols + 1, 3), "uint8")
    params = jax.eval_shape(config.agent.make().init, jax.random.key(0), picture)["params"]

    def total(params: Any, picture: jax.Array) -> jax.Array:
        output = policy(params, picture)
        return output.logits.sum() + output.value.sum()

    parts = [steps.counted(function, params, picture) for function in (total, jax.grad(total))]
    return None if None in parts else sum(part for part in parts if part is not None)


def measure(
    out: str,
    *,
    blocks: int,
    block_seconds: float,
    seeds: int,
    large: int,
    only: str,
    matrix: int,
    budget: float,
) -> list[dict[str, Any]]:
    """Measures every case until the budget of seconds is spent; tells and writes each group as it is done."""
    began = time.monotonic()
    platform = jax.default_backend()
    wanted = {name: case for name, case in cases(platform, seeds, large).items() if only in name}
    rows, matrix_rates = [], {}
    iterations = 1 if platform == "cpu" else 4
    for dtype in dict.fromkeys(name.rsplit(", ", 1)[1] for name in wanted):
        for way in dict.fromkeys(name.split(", ")[1] for name in wanted):
            group = {name: case for name, case in wanted.items() if f", {way}, {dtype}" in name}
            if not group or (budget and time.monotonic() - began > budget):
                continue
            if dtype not in matrix_rates:
                matrix_rates[dtype] = steps.matrix_rate(matrix, block_seconds, dtype)
            made = {name: training(case, iterations) for name, case in group.items()}
            runs = {name: run for name, (run, _) in made.items()}
            times = timing.alternate(runs, blocks=blocks, block_seconds=block_seconds)
            for name, seconds in times.items():
                case = group[name]
                frames = case.frames_per_step * case.seeds * iterations
                rates = sorted(frames / second for second in seconds)
                median, of_a_step = rates[len(rates) // 2], operations(case)
                rows.append(
                    {
                        "case": name,
                        "environments": case.environments,
                        "updates": case.updates,
                        "seeds": case.seeds,
                        "steps_per_second": {
                            "median": median,
                            "least": rates[0],
                            "greatest": rates[-1],
                        },
                        "times_the_authors": median / PUBLISHED[case.agent.kind],
                        "mflop_a_step": of_a_step and of_a_step / 1e6,
                        "utilisation": of_a_step and of_a_step * median / matrix_rates[dtype],
                        "peak_bytes": made[name][1],
                    }
                )
                print(f"{name:32} {median:12,.0f} steps/s", flush=True)
            if out:
                machine.write(Path(out), {**timing.where_and_when(), "command": COMMAND, "rows": rows})
    return rows


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}")
    given = flags.FLAGS
    run = functools.partial(
        measure, given.out, seeds=given.seeds, large=given.large, only=given.only, budget=given.budget
    )
    run(blocks=given.blocks, block_seconds=given.block_seconds, matrix=given.matrix)


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.DEFINE_string("out", OUT, "where the record is written; empty: nowhere")
    flags.DEFINE_integer("blocks", 5, "blocks of each case", lower_bound=1)
    flags.DEFINE_float("block_seconds", 1.0, "about how long a block is", lower_bound=0.01)
    flags.DEFINE_integer("seeds", 4, "runs side by side, on an accelerator", lower_bound=1)
    flags.DEFINE_integer("large", 4096, "environments of `large`, on an accelerator", lower_bound=8)
    flags.DEFINE_integer("matrix", 0, "size of the matrices whose product is the rate; 0: by platform")
    flags.DEFINE_string("only", "", "only cases whose name contains this")
    flags.DEFINE_float("budget", 0.0, "seconds after which no further group is begun; 0: no limit")
    app.run(main)
