"""What exporting costs, and whether an exported model is as fast as the live one.

    python -m benchmarks.export --out=results/export/speed.json

For a model of each paper, not trained: seconds to export it for cpu, cuda and tpu with a free batch, the size
of the file and of its weights, seconds to load it, seconds to compile it against the live function, and the
cost of a call against that of the live jitted function. Both get the same arrays, parameters on the device; a
call of `exported` is the program's alone, one of `checked` is `run_exported`'s, which looks at the inputs'
names, types, shapes and values, puts them on the device and fetches the outputs, and is compared with the
live function with the same transfers. All take turns in one process; ratios are medians over neighbouring
blocks, with the least and the greatest. That both give the same is checked first.
"""

import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from benchmarks import launching, timing
from experiments.exporting import Exportable, Options, export_model, run_exported
from experiments.registry import EXPERIMENTS, open_model
from experiments.runtime import packing
from experiments.runtime.checkpoints import Restored
from experiments.runtime.workdir import config_dict, write_json

TARGET = 1.05
"""How many times the live function's cost is allowed."""


def untrained(name: str, preset: str, length: int = 0) -> Exportable:
    """The model of an experiment's preset as `open_model` opens it, with random parameters; for one length,
    if that is given.
    """
    experiment, rng = EXPERIMENTS[name], np.random.default_rng(0)
    config = experiment.presets(preset)
    assert experiment.abstract_state

    def draw(leaf: Any) -> Any:
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.split(jax.random.key(0), leaf.shape)
        return jnp.asarray(0.02 * rng.standard_normal(leaf.shape), leaf.dtype)

    with tempfile.TemporaryDirectory() as folder:
        state = jax.tree.map(draw, experiment.abstract_state(config))
        write_json(Path(folder) / "config.json", config_dict(config))
        packing.write_state(Path(folder) / packing.STATE, Restored(0, state, {}))
        model = open_model(folder)
    return dataclasses.replace(model, lengths=(length,)) if length else model


CASES: dict[str, tuple[Callable[[], Exportable], int, int]] = {
    "simplicial agent": (lambda: untrained("boxworld", "paper"), 32, 0),
    "TP-Transformer": (lambda: untrained("mathematics", "quick", 64), 8, 64),
    "FOLNet": (lambda: untrained("folnet_pretrain", "quick"), 8, 0),
    "higher-order cell": (lambda: untrained("llrnn", "quick"), 32, 16),
    "Neural Turing Machine": (lambda: untrained("llrnn", "copy"), 32, 40),
}
"""For each: the model, the batch, and the length where it is free or one of several."""


def draw_inputs(model: Exportable, batch: int, length: int) -> dict[str, np.ndarray]:
    """Random arrays of the model's shapes."""
    sizes = {"batch": batch, "length": length or (model.lengths or (0,))[0]}
    rng = np.random.default_rng(0)
    arrays = {}
    for name, told in model.inputs.items():
        shape: Any = tuple(sizes[size] if isinstance(size, str) else size for size in told.shape)
        low, high = told.range or ((1, 1) if told.dtype == "bool" else (0, 255))
        arrays[name] = rng.integers(low, high + 1, shape).astype(told.dtype)
    return arrays


def measure(name: str, *, blocks: int, seconds: float) -> dict[str, Any]:
    """One row of the record, in blocks of about so many seconds.

    Raises:
        RuntimeError: the exported model gives something else than the live one.
    """
    make, batch, length = CASES[name]
    model = make()
    inputs = draw_inputs(model, batch, length)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.jaxmodel"
        exporting, manifest = clock(lambda: export_model(model, path, Options()))
        size = path.stat().st_size
        loading, loaded = clock(lambda: run_exported.load(path))
    program, arrays, _ = loaded.prepare(inputs)
    arguments = loaded.arguments(arrays)
    params, placed = jax.device_put(model.params), jax.device_put(inputs)
    live = jax.jit(lambda params, inputs: dict(model.function(params, inputs)))
    compiling_live, wanted = clock(lambda: jax.block_until_ready(live(params, placed)))
    compiling, found = clock(lambda: jax.block_until_ready(program.call(*arguments)))
    for output, array in wanted.items():
        if not np.allclose(found[output], array, rtol=1e-4, atol=1e-5):
            raise RuntimeError(f"{name}: the exported model gives another {output} than the live one")
    functions = {
        "live": lambda: live(params, placed),
        "exported": lambda: program.call(*arguments),
        "fetched": lambda: jax.device_get(live(params, jax.device_put(inputs))),
        "checked": lambda: loaded(inputs),
    }
    times = timing.alternate(functions, blocks=blocks, block_seconds=seconds)
    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(model.params))
    return {
        "model": name,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(model.params)),
        "inputs": {name: list(array.shape) for name, array in inputs.items()},
        "export_seconds": exporting,
        "file_bytes": size,
        "weight_bytes": weights,
        "program_bytes": sum(manifest["members"][one["member"]]["bytes"] for one in manifest["programs"]),
        "load_seconds": loading,
        "compile_seconds": {"live": compiling_live, "exported": compiling},
        "call_seconds": {name: float(np.median(seconds)) for name, seconds in times.items()},
        "exported_over_live": timing.ratio(times["exported"], times["live"]),
        "checked_over_fetched": timing.ratio(times["checked"], times["fetched"]),
    }


def clock[Result](function: Callable[[], Result]) -> tuple[float, Result]:
    """Seconds that a call takes, and what it gives."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def told(row: dict[str, Any]) -> str:
    """A row as a line."""
    over, checked = row["exported_over_live"], row["checked_over_fetched"]
    return (
        f"{row['model']}: exported in {row['export_seconds']:.2f} s, {row['file_bytes'] / 1e6:.2f} MB; "
        f"a call {1e3 * row['call_seconds']['exported']:.3f} ms, {timing.shown(over, 3)} of the live one's, "
        f"checked {checked['median']:.3f}"
        f"{'' if over['median'] <= TARGET else '; ABOVE THE TARGET'}"
    )


def main() -> None:
    """The program."""
    values = flags.FLAGS
    if unknown := sorted(set(values.models) - set(CASES)):
        raise app.UsageError(f"--models={unknown[0]} is not one of {', '.join(CASES)}")
    rows = (measure(name, blocks=values.blocks, seconds=values.seconds) for name in values.models)
    launching.record(rows, told, values.out, "python -m benchmarks.export")


if __name__ == "__main__":
    flags.DEFINE_string("out", "results/export/speed.json", "where the record goes; empty: nowhere")
    flags.DEFINE_list("models", list(CASES), "which models")
    flags.DEFINE_integer("blocks", 15, "blocks of each function", lower_bound=1)
    flags.DEFINE_float("seconds", 0.5, "of a block, about", lower_bound=0.0)
    launching.run(main)
