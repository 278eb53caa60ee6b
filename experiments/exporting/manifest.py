"""What an artifact says about itself, as JSON."""

import calendar
import datetime
from collections.abc import Mapping
from typing import Any

import jax
from jax import export

from experiments.exporting.interface import LENGTH, Exportable
from experiments.exporting.options import Options
from experiments.exporting.programs import sizes, split_of_input
from experiments.exporting.run_exported import FORMAT, FORMAT_VERSION
from experiments.runtime.workdir import versions

MONTHS_BACKWARD, WEEKS_FORWARD = 6, 3
"""What JAX promises: https://docs.jax.dev/en/latest/501/export.html#compatibility-guarantees"""


def describe(
    model: Exportable,
    options: Options,
    made: Mapping[int | None, export.Exported],
    today: datetime.date,
) -> dict[str, Any]:
    """Returns all of the manifest that does not depend on where the weights are."""
    first = next(iter(made.values()))
    named = {size for told in model.inputs.values() for size in told.shape if isinstance(size, str)}
    bounds = {LENGTH: (model.shortest, model.longest)}
    types = {name: str(aval.dtype) for name, aval in zip(sorted(model.outputs), first.out_avals, strict=True)}
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": model.kind,
        "source": dict(model.source),
        "inputs": [
            {
                "name": name,
                **vars(told),
                "shape": sizes(told.shape, options),
                "split": split_of_input(options),
            }
            for name, told in model.inputs.items()
        ],
        "outputs": [
            {
                "name": name,
                "shape": sizes(told.shape, options),
                "dtype": types[name],
                "meaning": told.meaning,
                "labels": list(told.labels),
            }
            for name, told in model.outputs.items()
        ],
        "symbols": {name: bounds.get(name, (1, None)) for name in sorted(named)},
        "programs": [{"member": member_of(length), "length": length} for length in made],
        "platforms": list(options.platforms),
        "kernels": {"names": list(options.kernels), "chips": [chip.kind for chip in options.chips]},
        "derivative": options.derivative,
        "sharding": {"axes": dict(options.sharding), "devices": first.nr_devices},
        "compatibility": window(today) | {"calling_convention": first.calling_convention_version},
        "versions": versions("jax", "jaxlib", "flax", "numpy", "flatbuffers"),
        "text": None if model.text is None else {**model.text, "length": list(made)[-1]},
    }


def member_of(length: int | None) -> str:
    """What the program for a length is called in the archive."""
    return "program.bin" if length is None else f"program-{length}.bin"


def window(today: datetime.date) -> dict[str, Any]:
    """Which versions of JAX run what is exported today.

    JAX counts from the day its release was built, which nothing on this machine tells: today's version was
    built by today.
    """
    month = today.month - 1 + MONTHS_BACKWARD
    year, month = today.year + month // 12, month % 12 + 1
    until = datetime.date(year, month, min(today.day, calendar.monthrange(year, month)[1]))
    return {
        "jax": jax.__version__,
        "exported": today.isoformat(),
        "until": until.isoformat(),
        "months_backward": MONTHS_BACKWARD,
        "weeks_forward": WEEKS_FORWARD,
    }
