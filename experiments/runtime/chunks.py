"""Chooses into how many parts a run cuts the gradient of a batch (`RunConfig.accumulate`).

On CPUs, the sum of gradients over parts whose temporary arrays fit into the cache can be faster than the
gradient of the whole batch. Where this holds is a matter of measurement. `chunks.json`, written by
`python -m benchmarks.chunks` and never by hand, is a list of lines

    {"experiment", "sizes", "parameters",      # what a row of a batch costs: fields of the config; model size
     "machine",                                # cores and caches, as `machine` describes them
     "rows",                                   # rows of a part in the fastest measured cut
     "batch_size", "seconds", ...}             # the record: median seconds of a step by number of parts

A run takes the line with its experiment, sizes, parameters and machine. Without such a line and on
accelerators it computes the gradient in one piece. Each of several devices cuts its own rows of a batch.
"""

import dataclasses
import functools
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from experiments.runtime import mesh, processes
from experiments.runtime.config import RunConfig
from experiments.runtime.workdir import completed as completed_fields
from experiments.runtime.workdir import config_dict, flatten, read_json

TABLE = Path(__file__).with_name("chunks.json")
CPUS = Path("/sys/devices/system/cpu")


def resolved[Config: RunConfig](
    config: Config, workdir: str | os.PathLike | None, init: Callable[[jax.Array], Any]
) -> Config:
    """Returns the config with `accumulate` chosen, if it is 0.

    A run that has begun in the workdir continues with its own number. All processes use that of the first.

    Args:
        config: the run's config.
        workdir: the run's directory, which need not exist; or None.
        init: draws the parameters from a key; only their shapes are used.

    Raises:
        WorkdirError: the workdir's `config.json` is damaged.
        ValueError: the table is damaged.
    """
    if config.accumulate:
        return config
    parts = begun(workdir)
    if parts is None:
        parts = processes.gathered([chosen(config, init)])[0].item()
    return dataclasses.replace(config, accumulate=parts)


def begun(workdir: str | os.PathLike | None) -> int | None:
    """Returns the number of parts of the run that has begun in a workdir; None if none has.

    Raises:
        WorkdirError: the workdir's `config.json` is damaged.
    """
    path = None if workdir is None else Path(workdir) / "config.json"
    if path is None or not path.exists():
        return None
    recorded = read_json(path).get("accumulate")
    # Without the field the run is older than it and has one part; the workdir's check reports all else.
    return recorded if isinstance(recorded, int) and recorded > 0 else 1


def chosen(config: RunConfig, init: Callable[[jax.Array], Any]) -> int:
    """Returns the number of parts for a new run on this machine: a divisor of the rows of a device."""
    batch, remainder = divmod(config.batch_size, jax.device_count())
    if jax.default_backend() != "cpu" or remainder:
        return 1
    kind, here = (config.experiment, machine()), sizes_of(config)
    lines = [
        line
        for line in read(TABLE)
        if (line["experiment"], line["machine"]) == kind and completed(line["sizes"], config) == here
    ]
    if not lines:
        return 1
    count = parameters(init)
    return parts_of(batch, next((line["rows"] for line in lines if line["parameters"] == count), batch))


def parts_of(batch_size: int, rows: int) -> int:
    """Returns the least number of equal parts of a batch that have at most `rows` rows."""
    least = -(-batch_size // rows)
    return next(parts for parts in range(least, batch_size + 1) if batch_size % parts == 0)


def sizes_of(config: RunConfig) -> dict[str, Any]:
    """Returns the fields of a config, by dotted name, on which the work per row of a batch depends."""
    flat = flatten(config_dict(config))
    return {
        name: value
        for name, value in flat.items()
        if any(name == field or name.startswith(f"{field}.") for field in config.size_fields)
    }


def completed(sizes: dict[str, Any], config: RunConfig) -> dict[str, Any]:
    """Returns the sizes of a line with the defaults of fields that configs were given since."""
    known = sizes.keys() | sizes_of(config).keys()
    return {name: value for name, value in completed_fields(sizes, config).items() if name in known}


def parameters(init: Callable[[jax.Array], Any]) -> int:
    """Returns the number of parameters that `init(key)` draws, without drawing them."""
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(init, jax.random.key(0))))


@functools.cache
def machine() -> dict[str, Any]:
    """Describes what decides which parts fit: architecture, usable cores, caches of the first core.

    No part of a batch fits into a cache of the first level, which differs between otherwise equal machines.
    """
    caches = []
    for folder in sorted(CPUS.glob("cpu0/cache/index*")):
        if (folder / "level").read_text().strip() != "1":
            caches.append((folder / "size").read_text().strip())  # such as "1024K"
    return {"architecture": platform.machine(), "cores": mesh.usable_cores(), "caches": caches}


def read(path: Path) -> list[dict[str, Any]]:
    """Reads a table; a missing file is an empty table.

    Raises:
        ValueError: the file is not such a table; the message names it.
    """
    if not path.exists():
        return []
    try:
        lines = json.loads(path.read_text(encoding="utf-8"))
        for line in lines:
            for name, kind in {
                "experiment": str,
                "sizes": dict,
                "parameters": int,
                "machine": dict,
                "rows": int,
            }.items():
                if not isinstance(line[name], kind):
                    raise TypeError(f"{name}: got {line[name]!r:.60}, expected {kind.__name__}")
            if line["rows"] < 1:
                raise ValueError(f"rows: got {line['rows']}, expected at least 1")
    except (ValueError, KeyError, TypeError) as error:  # ValueError covers JSON and its encoding
        raise ValueError(
            f"{path}: got {error!r}, expected lines with experiment, sizes, parameters, machine and rows"
        ) from error
    return lines
