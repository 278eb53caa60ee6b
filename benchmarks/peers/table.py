"""The record of the peers as a page of Markdown."""

from collections.abc import Mapping
from typing import Any

from benchmarks import timing

TITLES = {"forward": "forward", "gradient": "forward and backward"}
WORDS = {"failed": "failed", "differs": "not timed, its numbers differ", "left_out": "left out"}


def page(record: Mapping[str, Any]) -> str:
    """What was measured where, one table of ratios, and who was not here."""
    versions, devices = record["versions"], record["devices"]
    text = [
        "# Ours beside others",
        "",
        f"Measured {record['date']} on {devices['kind']} ({devices['cpus']} cores, {record['threads']} "
        f"threads; {record['load']} processes waiting on average in the minute before), Python "
        f"{versions['python']}, JAX {versions['jax']}, flax {versions['flax']}, commit "
        f"{(record['commit'] or 'unknown')[:12]}, by `{record['command']}`.",
        "",
        "Everything is float32 and computes the same: outputs and, where there is a backward pass, gradients "
        "of all parameters and inputs were compared before anything was timed (apart: the greatest "
        "difference, over the greatest number of its array, allowed "
        f"{record['tolerance']['forward']:.0e} forward; of gradients, where rounding decides a ReLU, the "
        f"norm of an array's difference, over its norm, may be {record['tolerance']['gradient']:.0e}). All "
        "of a row took turns in one process, on all cores. A ratio is how many times as long the "
        "other takes as ours, above 1 where ours is faster: the median over neighbouring blocks (least to "
        "greatest).",
        "",
        "| what | sizes | pass | other | ours, ms | other, ms | times as long | apart |",
        "|---|---|---|---|--:|--:|--:|--:|",
    ]
    for row in record["rows"]:
        for name, peer in row["peers"].items():
            head = f"| {row['subject']} | {row['shape']} | {TITLES[row['direction']]} | {name} |"
            word = next((f"{WORDS[key]}: {peer[key]}" for key in WORDS if key in peer), None)
            if word is not None:
                text.append(f"{head} | | {word.replace('|', '/')} | |")
                continue
            text.append(
                f"{head} {_milliseconds(row['ours']['seconds'])} | {_milliseconds(peer['seconds'])} | "
                f"{timing.shown(peer['times_as_long'])} | {peer['difference']:.0e} |"
            )
    text += ["", "The others:", ""]
    for name, about in record["peers"].items():
        if "absent" in about:
            text.append(f"- {name}: skipped; {about['absent']}.")
            continue
        facts = [f"{key.replace('_', ' ')} {value}" for key, value in about.items()]
        text.append(f"- {name}: {'; '.join(facts)}.")
    if record["not_measured"]:
        text += ["", f"Not measured, the budget ended: {', '.join(record['not_measured'])}."]
    return "\n".join(text) + "\n"


def _milliseconds(seconds: float) -> str:
    """Three digits that count."""
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:.0f}"
