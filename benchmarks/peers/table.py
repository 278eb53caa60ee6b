"""Formats the record of the peers as a Markdown page."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import timing

TITLES = {"forward": "forward", "gradient": "forward and backward"}
WORDS = {"failed": "failed", "differs": "not timed, results differ", "left_out": "skipped"}


def page(record: Mapping[str, Any]) -> str:
    """Returns the page: the conditions of the measurement, a table of ratios, and the libraries."""
    text = [
        "# Comparison with other libraries",
        "",
        conditions(record),
        "",
        "Everything is float32. Before timing, outputs and, for backward passes, gradients of all parameters "
        'and inputs were compared with ours. The column "difference" is the maximum difference relative to '
        f"the maximum of its array; {record['tolerance']['forward']:.0e} is allowed in forward passes. For "
        "gradients, where rounding can decide a ReLU, the norm of an array's difference may be "
        f"{record['tolerance']['gradient']:.0e} of its norm. The programs of a row ran in alternating blocks "
        f"in one process, on all cores, which {kept(record['kept_mib'])}. The ratio is the other library's "
        "time over ours, above 1 if ours is faster: the median over adjacent blocks (minimum to maximum).",
        "",
        "| subject | sizes | pass | library | ours, ms | library, ms | ratio | difference |",
        "|---|---|---|---|--:|--:|--:|--:|",
    ]
    for row in record["rows"]:
        for name, peer in row["peers"].items():
            head = f"| {row['subject']} | {row['shape']} | {TITLES[row['direction']]} | {name} |"
            if (word := untimed(peer)) is not None:
                text.append(f"{head} | | {word} | |")
                continue
            text.append(
                f"{head} {milliseconds(row['ours']['seconds'])} | {milliseconds(peer['seconds'])} | "
                f"{timing.shown(peer['times_as_long'])} | {peer['difference']:.0e} |"
            )
    return "\n".join([*text, *summary(record["rows"]), *ending(record)]) + "\n"


def summary(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns lines with the geometric mean of the median ratios and the number of them below 1.

    An environment in plain Python is not among them: one such row would outweigh all others.
    """
    peers = [peer for row in rows for name, peer in row["peers"].items() if name != "plain Python"]
    ratios = [peer["times_as_long"]["median"] for peer in peers if untimed(peer) is None]
    if not ratios:
        return []
    behind = sum(ratio < 1 for ratio in ratios)
    return [
        "",
        f"Geometric mean of the {len(ratios)} ratios without plain Python: "
        f"{statistics.geometric_mean(ratios):.2f}; {behind} below 1.",
    ]


def conditions(record: Mapping[str, Any]) -> str:
    """Returns a paragraph about the machine, the versions and the command."""
    versions, devices = record["versions"], record["devices"]
    return (
        f"Measured on {record['date']} on {devices['kind']} ({devices['cpus']} cores, {record['threads']} "
        f"threads, load average {record['load']} before the run) with Python "
        f"{versions['python']}, JAX {versions['jax']} and flax {versions['flax']}, commit "
        f"{(record['commit'] or 'unknown')[:12]}, by `{record['command']}`."
    )


def untimed(peer: Mapping[str, Any]) -> str | None:
    """Returns why a peer was not timed, for a cell; None if it was."""
    word = next((f"{WORDS[key]}: {peer[key]}" for key in WORDS if key in peer), None)
    return word and word.replace("|", "/")


def ending(record: Mapping[str, Any]) -> list[str]:
    """Returns the lines about the libraries and about what was not measured."""
    text = ["", "Libraries:", ""]
    for name, about in record["peers"].items():
        if "absent" in about:
            text.append(f"- {name}: skipped, {about['absent']}.")
            continue
        facts = [f"{key.replace('_', ' ')} {value}" for key, value in about.items()]
        text.append(f"- {name}: {'; '.join(facts)}.")
    if record["not_measured"]:
        text += ["", f"Not measured, since the budget was exhausted: {', '.join(record['not_measured'])}."]
    return text


def kept(mib: int) -> str:
    """Says what the process did with freed memory."""
    if mib == 0:
        return "returned large blocks of memory to the system when they were freed"
    return f"kept freed blocks of memory of up to {mib} MiB, as our training does"


def milliseconds(seconds: float) -> str:
    """Returns milliseconds with three significant digits."""
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:.0f}"
