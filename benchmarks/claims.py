"""The claims about speed: lines of `results/claims.jsonl`, made from the records of `make bench`.

    python -m benchmarks.claims --results=results

Each record in the folder becomes lines whose ids begin with `speed.`; they replace the earlier ones. A ratio
is measured in blocks that take turns in one run, and `per_seed` holds it for each block, or, for records that
kept no others, for the least, the median and the greatest block. A claim of being faster holds if it does so
in every block.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from experiments.runtime import claims

PREFIX = "speed."
Record = Mapping[str, Any]

DIRECTIONS = {"forward": "forward", "both": "gradient", "gradient": "gradient"}
STEPS_TARGET = 1.2
"""What training steps should reach in geometric mean over the papers."""


def slug(text: str) -> str:
    """Returns a name as part of an id: lower case, words joined by underscores."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def line(
    record: Record,
    name: str,
    claim: str,
    measure: str,
    blocks: Sequence[float] | Mapping[str, Any],
    *,
    ours: str = "ours",
    other: str = "",
    other_seconds: Sequence[float] = (),
    target: float | None = None,
    higher_is_better: bool = True,
    paper: str | None = None,
    **entry: Any,
) -> dict[str, Any]:
    """Returns the line of a claim about speed; with a target, it holds if every block reaches that."""
    if isinstance(blocks, Mapping):
        if "blocks" not in blocks:
            measure += " (least, median and greatest block)"
            blocks = [blocks[key] for key in ("least", "median", "greatest")]
        else:
            blocks = blocks["blocks"]
    devices = record.get("devices")
    if not isinstance(devices, Mapping):  # of a program that needs nothing but JAX
        devices = {
            "platform": record["platform"],
            "cpus": record["cpus"],
            "kind": record["chip"],
            "count": devices,
        }
    found: dict[str, Any] = {
        "id": f"{PREFIX}{name}",
        "claim": claim,
        "measure": measure,
        "higher_is_better": higher_is_better,
        "paper": paper,
        "target": target,
        "tests": [] if target is None else ["threshold"],
        "level": 0.95,
        "share": 1.0,
        "ours": {"name": ours, "per_seed": list(blocks), "seconds": [], "parameters": None, **entry},
        "baselines": [],
        "fixed_beforehand": None,
        "search_seeds": [],
        "hardware": claims.hardware(devices),
        "versions": f"jax {record['versions']['jax']}",
        "date": record["date"],
        "command": record["command"],
        "commit": record.get("commit"),
    }
    if other:
        found["baselines"] = [
            {
                "name": other,
                "per_seed": [],
                "seconds": list(other_seconds),
                "parameters": None,
                "compared": False,
            }
        ]
    return {**found, "holds": claims.verdict(found)}


def faster(record: Record, name: str, what: str, other: str, blocks: Any, **entry: Any) -> dict[str, Any]:
    """Returns the line of "what is at least as fast as other"."""
    return line(
        record,
        name,
        f"{what}: at least as fast as {other}",
        f"time of {other} over ours",
        blocks,
        other=other,
        target=1.0,
        **entry,
    )


def _ratios(other: Sequence[float], ours: Sequence[float]) -> list[float]:
    return [theirs / own for theirs, own in zip(other, ours, strict=True)]


def kernels(record: Record) -> Iterator[dict[str, Any]]:
    """Yields the lines of blockwise attention in plain JAX against what a user would write."""
    yield from _calls(record, "kernels", "xla")


def hopper(record: Record) -> Iterator[dict[str, Any]]:
    """Yields the lines of the hand-written kernels on a GPU against plain JAX and what a user would write."""
    yield from _calls(record, slug(record["chip"].removeprefix("NVIDIA ")), "gpu")


def _calls(record: Record, prefix: str, implementation: str) -> Iterator[dict[str, Any]]:
    for row in record["rows"]:
        paths, direction = row["paths"], DIRECTIONS[row["direction"]]
        ours = paths.get(implementation)
        if ours is None or "failed" in ours:
            continue
        for other, speedup in ours["speedup"].items():
            memory = [(path.get("temporary_bytes") or 0) / 1e6 for path in (ours, paths[other])]
            found = faster(
                record,
                f"{prefix}.{row['operation']}.{slug(row['case'])}.{direction}.{slug(other)}",
                f"{row['operation']}, {row['case']} ({direction})",
                other,
                speedup,
                seconds=ours["blocks"],
                other_seconds=paths[other]["blocks"],
            )
            found["claim"] += f", with {memory[0]:.0f} instead of {memory[1]:.0f} MB"
            yield found


def peers(record: Record) -> Iterator[dict[str, Any]]:
    """Yields the lines of the same models in other libraries."""
    for row in record["rows"]:
        direction = DIRECTIONS[row["direction"]]
        name = f"peers.{slug(row['subject'])}.{direction}"
        yield from _against_peers(record, row, name, f"{row['subject']} ({row['shape']}), {direction}")


def training_steps(record: Record) -> Iterator[dict[str, Any]]:
    """Yields the lines of whole training steps, and of their geometric mean if all were measured."""
    for row in record["rows"]:
        name = f"training_step.{slug(row['subject'])}"
        what = f"a training step of {row['subject']} ({row['shape']})"
        yield from _against_peers(record, row, name, what, parameters=row["ours"]["parameters"])
    for other, means in record["geometric_means"].items():
        yield line(
            record,
            f"training_step.geometric_mean.{slug(other)}",
            f"training steps of all papers: {STEPS_TARGET} times as fast as {other} in geometric mean",
            f"geometric mean of the times of {other} over ours",
            means,
            other=other,
            target=STEPS_TARGET,
        )


def _against_peers(
    record: Record, row: Record, name: str, what: str, **entry: Any
) -> Iterator[dict[str, Any]]:
    """Yields the lines of a row's peers.

    Raises:
        ValueError: a peer was not timed, so that its claim would be missing without a word.
    """
    for other, found in row["peers"].items():
        if "blocks" not in found:
            raise ValueError(f"{row['subject']}: got no times of {other}, expected some: {found}")
        yield faster(
            record,
            f"{name}.{slug(other)}",
            what,
            other,
            _ratios(found["blocks"], row["ours"]["blocks"]),
            seconds=row["ours"]["blocks"],
            other_seconds=found["blocks"],
            **entry,
        )


def environments(record: Record) -> Iterator[dict[str, Any]]:
    """Yields the lines of BoxWorld's environments."""
    for row in record["rows"]:
        name, size = row["environment"], row["batch"]
        what = f"{name} BoxWorld with pictures, {size:,} environments"
        for other, blocks in row["times_faster_than"].items():
            if other == "plain Python":
                yield faster(record, f"boxworld.{name}.plain_python", what, other, blocks)
        rate = row["rates"]["with pictures"]["steps_per_second"]
        yield line(record, f"boxworld.{name}.steps", what, "environment steps per second", rate)
        if blocks := row.get("solver_times_faster"):  # added after the first record
            what = f"all optimal actions in {size:,} states of {name} BoxWorld at once"
            yield faster(
                record, f"boxworld.{name}.solver", what, "a plain search of one state at a time", blocks
            )
            yield line(
                record,
                f"boxworld.{name}.solver.states",
                f"{what}: at least 20,000 a second",
                "states per second",
                row["rates"]["batched solver"]["states_per_second"],
                target=20_000.0,
            )


AUTHORS_STEPS = {"relational": 19_000, "simplicial": 14_000}


def agents(record: Record) -> Iterator[dict[str, Any]]:
    """Yields the lines of acting and learning with the paper's agents."""
    for row in (row for row in record["rows"] if "case" in row):  # the others are of matrix products
        kind = row["case"].partition(",")[0]
        yield line(
            record,
            f"boxworld.training.{kind}",
            f"acting and learning with the paper's {kind} agent",
            "environment steps per second",
            row["steps_per_second"],
            paper=f"{AUTHORS_STEPS[kind]:,} on a P100 and 192 virtual CPUs",
        )


def tp_transformer(record: Record) -> Iterator[dict[str, Any]]:
    """Yields the lines of training steps over their floor, and of cached decoding."""
    for row in record["rows"]:
        if row["what"] == "training":
            yield line(
                record,
                f"tp_transformer.training.{row['model']}",
                f"a training step of the paper's {row['model']}, {row['batch']} questions of {row['source']} "
                f"symbols, {row['tokens_per_second']:,.0f} tokens/s",
                "time of a step over its matrix products and its optimizer's update",
                row["over_floor"],
                higher_is_better=False,
                parameters=row["parameters"],
            )
        else:
            yield faster(
                record,
                f"tp_transformer.decoding.{row['source']}",
                f"{row['batch']} greedy answers of {row['length']} symbols to questions of {row['source']}",
                "decoding without the cache",
                row["speedup"],
            )


def folnet(record: Record) -> Iterator[dict[str, Any]]:
    """Yields the lines of whole layers' training steps over their matrix products."""
    for row in record["rows"]:
        if row["what"] == "layer":
            yield line(
                record,
                f"folnet.layer.{row['name']}",
                f"a training step of a layer ({row['name']}), {row['batch']} texts of {row['length']} "
                f"tokens in {row['parts']} parts, {row['tokens_per_second']['step']:,.0f} tokens/s",
                "time of a step over its matrix products",
                row["over_products"]["step"],
                higher_is_better=False,
                parameters=row["parameters"],
            )


def kinship(record: Record) -> Iterator[dict[str, Any]]:
    """Yields the lines of drawing kinship problems."""
    for name, rate in record["problems_per_second"].items():
        yield line(
            record,
            f"kinship.{slug(name)}",
            f"kinship problems, {name}",
            "problems per second and core",
            [rate],
        )


def llrnn(record: Record) -> Iterator[dict[str, Any]]:
    """Yields the lines of cells against the same cells with every power formed."""
    for row in record["rows"]:
        if "speedup" in row:
            what = f"a training step of the cell {row['cell']}, {row['features']} features"
            other = "forming every power"
            yield faster(record, f"llrnn.{slug(row['cell'])}", what, other, row["speedup"])


def export(record: Record) -> Iterator[dict[str, Any]]:
    """Yields the lines of calls of exported models."""
    for row in record["rows"]:
        yield line(
            record,
            f"export.{slug(row['model'])}",
            f"a call of an exported {row['model']} takes at most 5 % longer than of the live one",
            "time of a call over that of the live jitted function",
            row["exported_over_live"],
            target=1.05,
            higher_is_better=False,
            parameters=row["parameters"],
        )


def scaling(record: Record) -> Iterator[dict[str, Any]]:
    """Yields the lines of what a step costs besides its work, and of the efficiency of real steps."""
    alone = {
        (row["case"], row["parallel"]): row["step_seconds"] for row in record["rows"] if row["devices"] == 1
    }
    for row in record["rows"]:
        parallel, devices = row["parallel"], row["devices"]
        where = f"on {devices} fake CPU devices"
        if row["case"] == "nothing":
            overhead = row["overhead_seconds"]
            yield line(
                record,
                f"scaling.{parallel}.devices_{devices}",
                f"{parallel}: at most 2 ms per step besides its work {where}",
                "milliseconds per step of a model with almost no computation",
                {
                    key: [1e3 * block for block in value] if key == "blocks" else 1e3 * value
                    for key, value in overhead.items()
                },
                target=1e3 * record["target_overhead_seconds"],
                higher_is_better=False,
            )
        elif devices > 1:
            yield line(
                record,
                f"scaling.{row['case']}.{parallel}.devices_{devices}",
                f"{parallel}: a step of {row['case']} {where} of the same two cores",
                "step time on one device, times the devices, over the step time on all of them",
                [devices * alone[row["case"], parallel] / row["step_seconds"]],
            )


RECORDS = {
    "kernels/cpu.json": kernels,
    "kernels/NVIDIA-H200.json": hopper,
    "peers/speed.json": peers,
    "peers/training.json": training_steps,
    "boxworld/environment_speed.json": environments,
    "boxworld/training_speed.json": agents,
    "tp_transformer/speed.json": tp_transformer,
    "folnet/speed.json": folnet,
    "kinship/speed.json": kinship,
    "llrnn/speed.json": llrnn,
    "export/speed.json": export,
    "scaling/speed.json": scaling,
}
"""The records in the folder of results, and what makes lines of each."""

COMMANDS = {"boxworld/environment_speed.json": "python -m benchmarks.boxworld"}
"""The commands of records that do not name theirs."""


def lines(results: Path) -> list[dict[str, Any]]:
    """Returns the lines of all records that are in the folder.

    Raises:
        ValueError: a record that is not what its program writes; the file is named.
    """
    found = []
    for name, make in RECORDS.items():
        file = results / name
        if not file.exists():
            continue
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            found += make({"command": COMMANDS.get(name), **record})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file}: got no record of its program, expected one ({error!r})") from error
    return found


def main() -> int:
    """Writes the lines of all records to the file of claims; returns the exit status."""
    parser = machine.parser(__doc__, results=(Path("results"), "the folder of results"))
    arguments = parser.parse_args()
    try:
        new = lines(arguments.results)
        kept = [old for old in claims.read(arguments.results) if not old["id"].startswith(PREFIX)]
        claims.write(arguments.results, [*kept, *new])
    except ValueError as error:
        parser.error(str(error))
    held = sum(found["holds"] is True for found in new)
    asked = sum(found["holds"] is not None for found in new)
    print(f"{arguments.results / claims.FILE}: {len(new)} claims about speed, {held} of {asked} confirmed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
