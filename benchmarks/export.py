"""Measures the cost of exporting models, and the speed of exported models against live ones.

    python -m benchmarks.export --out=results/export/speed.json

For an untrained model of each paper: seconds to export it for cpu, cuda and tpu with a symbolic batch size,
the size of the file and of its weights, seconds to load it, seconds to compile it compared with the live
function, and the time of a call compared with the live jitted function. Both get the same arrays, with
parameters on the device. `exported` calls only the program. `checked` calls `run_exported`, which validates
the inputs' names, types, shapes and values, moves them to the device and fetches the outputs; it is compared
with the live function including the same transfers. All alternate in one process; ratios are medians over
neighbouring blocks, with minimum and maximum. The outputs are compared first.
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
"""Maximum ratio to the time of the live function."""


def untrained(name: str, preset: str, length: int = 0) -> Exportable:
    """Returns the model of an experiment's preset as `open_model` does, with random parameters.

    A `length` other than 0 restricts it to that length.
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
"""For each case: the model, the batch size, and the length (0 if the model does not have a choice)."""


def draw_inputs(model: Exportable, batch: int, length: int) -> dict[str, np.ndarray]:
    """Draws random inputs with the model's shapes."""
    sizes = {"batch": batch, "length": length or (model.lengths or (0,))[0]}
    rng = np.random.default_rng(0)
    arrays = {}
    for name, spec in model.inputs.items():
        shape: Any = tuple(sizes[size] if isinstance(size, str) else size for size in spec.shape)
        low, high = spec.range or ((1, 1) if spec.dtype == "bool" else (0, 255))
        arrays[name] = rng.integers(low, high + 1, shape).astype(spec.dtype)
    return arrays


def measure(name: str, *, blocks: int, seconds: float) -> dict[str, Any]:
    """Measures one row of the record, in blocks of about `seconds`.

    Raises:
        RuntimeError: the outputs of the exported and the live model differ.
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
            raise RuntimeError(f"{name}: the output {output} of the exported model differs from the live one")
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
    """Calls a function and returns the seconds it took and its result."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def format_row(row: dict[str, Any]) -> str:
    """Formats a row as one line."""
    over, checked = row["exported_over_live"], row["checked_over_fetched"]
    return (
        f"{row['model']}: exported in {row['export_seconds']:.2f} s, {row['file_bytes'] / 1e6:.2f} MB; "
        f"a call takes {1e3 * row['call_seconds']['exported']:.3f} ms, {timing.shown(over, 3)} of the live "
        f"one, checked {checked['median']:.3f}"
        f"{'' if over['median'] <= TARGET else '; ABOVE THE TARGET'}"
    )


def main() -> None:
    """Runs the program with the values of its flags."""
    values = flags.FLAGS
    if unknown := sorted(set(values.models) - set(CASES)):
        raise app.UsageError(f"--models: got {unknown[0]!r}, expected some of {', '.join(map(repr, CASES))}")
    rows = (measure(name, blocks=values.blocks, seconds=values.seconds) for name in values.models)
    launching.record(rows, format_row, values.out, "python -m benchmarks.export")


if __name__ == "__main__":
    flags.DEFINE_string("out", "results/export/speed.json", "output file; empty to write none")
    flags.DEFINE_list("models", list(CASES), "models to measure")
    flags.DEFINE_integer("blocks", 15, "timing blocks per function", lower_bound=1)
    flags.DEFINE_float("seconds", 0.5, "approximate seconds per block", lower_bound=0.0)
    launching.run(main)
