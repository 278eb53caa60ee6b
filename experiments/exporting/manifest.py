"""The manifest of an artifact: a JSON description of its programs, arrays and compatibility."""

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
"""JAX's guarantees: https://docs.jax.dev/en/latest/501/export.html#compatibility-guarantees"""


def describe(
    model: Exportable,
    options: Options,
    made: Mapping[int | None, export.Exported],
    today: datetime.date,
) -> dict[str, Any]:
    """Returns the part of the manifest that does not depend on where the weights are stored."""
    first = next(iter(made.values()))
    named = {size for one in model.inputs.values() for size in one.shape if isinstance(size, str)}
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
                **vars(one),
                "shape": sizes(one.shape, options),
                "split": split_of_input(options),
            }
            for name, one in model.inputs.items()
        ],
        "outputs": [
            {
                "name": name,
                "shape": sizes(one.shape, options),
                "dtype": types[name],
                "meaning": one.meaning,
                "labels": list(one.labels),
            }
            for name, one in model.outputs.items()
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
    """Returns the name in the archive of the program for a length."""
    return "program.bin" if length is None else f"program-{length}.bin"


def window(today: datetime.date) -> dict[str, Any]:
    """Returns the window in which JAX guarantees to run a model exported today.

    JAX counts from the build date of its release, which is not available here. Today is an upper bound for
    the build date of the installed version.
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
