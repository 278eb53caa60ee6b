"""Measures training on bridge BoxWorld, acting and learning, for both agents in alternating blocks.

There are three variants: `paper`, with 512 environments x 40 steps split into 16 updates, as in the paper;
`seeds`, with several such runs in one program (counting the steps of all); and `large`, with 4,096
environments in a single update. CPUs run only `paper`, which already uses all cores: with a device per core,
as in a run, if you set JAX_NUM_CPU_DEVICES to their number. Accelerators run each variant also in bfloat16.
The paper reports 19,000 (relational) and 14,000 (simplicial) steps/s on a P100 with 192 virtual CPUs. The
time of a step includes rendering, acting and its share of the gradient and update; its contractions are those
of the agent, once for acting, and forward and backward for learning.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from benchmarks import steps, timing
from experiments import boxworld
from experiments.boxworld.config import Dtype, Kind
from experiments.boxworld.engine import Impala, make_policy
from experiments.runtime import chunks

PUBLISHED: dict[Kind, float] = {"relational": 1.9e4, "simplicial": 1.4e4}
"""Steps/s reported by the authors on a P100 with 192 virtual CPUs."""
SEEDS, LARGE = 4, 4096


def config_of(agent: Kind, dtype: Dtype, **fields: Any) -> boxworld.Config:
    """Returns the paper's config with the given agent, dtype and fields."""
    config = dataclasses.replace(boxworld.get_config("paper"), **fields)
    config.agent = dataclasses.replace(config.agent, kind=agent, dtype=dtype)
    return config


def cases(platform: str = "") -> dict[str, tuple[str, dict[str, boxworld.Config]]]:
    """Returns the cases of a platform, by default this one: configs of both agents, to run alternately."""
    ways: dict[str, dict[str, int]] = {"paper": {}}
    dtypes: list[Dtype] = ["float32"]
    if (platform or jax.default_backend()) != "cpu":
        ways |= {f"{SEEDS} seeds": {"seeds": SEEDS}, "large": {"batch_size": LARGE, "updates": 1}}
        dtypes.append("bfloat16")
    return {
        f"{way}, {dtype}": (
            dtype,
            {f"{agent}, {way}, {dtype}": config_of(agent, dtype, **fields) for agent in PUBLISHED},
        )
        for dtype in dtypes
        for way, fields in ways.items()
    }


def training(config: boxworld.Config, iterations: int) -> tuple[Callable[[], Any], int | None]:
    """Returns a compiled function that runs the next `iterations`, and its peak memory in bytes.

    As in a run, on all devices, and in as many parts as were measured to be fast.
    """
    config = chunks.resolved(config, None, config.init_params)
    on_cores = jax.default_backend() == "cpu" and jax.device_count() > 1
    engine = Impala(config, "shard_map" if on_cores else "jit")
    carry = [engine.place(engine.initial())]
    engine.prepare(carry[0], 0, iterations)
    program: Any = engine._programs[iterations]

    def run():
        carry[0], report = engine.advance(carry[0], 0, iterations)
        if not report.finite.all():
            raise FloatingPointError("training: loss or parameters are not finite")
        return report.grad_norm

    return run, steps.peak_bytes(program.memory_analysis())


def operations(config: boxworld.Config) -> int | None:
    """Counts the operations of the agent's contractions per environment step.

    A step runs the agent once for acting, and forward and backward for learning.
    """
    board, policy = config.board.make(), make_policy(config)
    picture = jax.ShapeDtypeStruct((1, board.rows, board.cols + 1, 3), "uint8")
    params = jax.eval_shape(config.agent.make().init, jax.random.key(0), picture)["params"]

    def total(params: Any, picture: jax.Array) -> jax.Array:
        output = policy(params, picture)
        return output.logits.sum() + output.value.sum()

    parts = [steps.counted(function, params, picture) for function in (total, jax.grad(total))]
    return None if None in parts else sum(part for part in parts if part is not None)


def measure(group: dict[str, boxworld.Config], rate: float, seconds: float) -> list[dict[str, Any]]:
    """Measures a row for each agent, for `steps.rows`."""
    iterations = 1 if jax.default_backend() == "cpu" else 4
    made = {name: training(config, iterations) for name, config in group.items()}
    runs = {name: run for name, (run, _) in made.items()}
    rows = []
    for name, times in timing.alternate(runs, blocks=5, block_seconds=seconds).items():
        config = group[name]
        frames = config.frames_per_step * config.seeds * iterations
        rates, of_a_step = timing.spread([frames / second for second in times]), operations(config)
        median = rates["median"]
        rows.append(
            {
                "name": name,
                "case": name,
                "environments": config.environments,
                "updates": config.updates,
                "seeds": config.seeds,
                "steps_per_second": rates,
                "times_the_authors": median / PUBLISHED[config.agent.kind],
                "mflop_a_step": of_a_step and of_a_step / 1e6,
                "utilisation": of_a_step and of_a_step * median / rate,
                "peak_bytes": made[name][1],
            }
        )
    return rows


ROOM = steps.Room("boxworld", cases, measure)
