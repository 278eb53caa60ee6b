"""Formats the record of the training steps as a Markdown page."""

from collections.abc import Mapping
from typing import Any

from benchmarks import timing
from benchmarks.peers import table


def page(record: Mapping[str, Any]) -> str:
    """Returns the page: the conditions of the measurement, a table of ratios, and the libraries."""
    tolerance = record["tolerance"]
    text = [
        "# Training steps in PyTorch and here",
        "",
        table.conditions(record),
        "",
        "A step is the next batch from the host, forward pass, backward pass and optimizer, in float32 and "
        "without dropout. Before timing, all programs trained from the same weights on the same batches: the "
        f"first step may differ by {tolerance['change']:.0e} of its norm, and losses by "
        f"{tolerance['losses']:.0e}, in the second half of the steps by {tolerance['later_losses']:.0e}, or "
        f"by {record['margin']} times as much as our own course differs from itself, begun from weights that "
        "are a rounding error away (the column before the last; the most of three such courses). The "
        "programs of a row then ran in alternating blocks in one process, on all cores, which "
        f"{table.kept(record['kept_mib'])}. The ratio is the other library's time over ours, above 1 if ours "
        "is faster: the median over adjacent blocks (minimum to maximum). The share of products is the time "
        "of our step's matrix products at the rate of large ones, relative to the time of our step; peak "
        "memory is the compiler's, with parameters and optimizer.",
        "",
        "| subject | sizes | parameters | parts | peak, MB | share of products | library | ours, ms | "
        "library, ms | ratio | own losses differ by | losses differ by |",
        "|---|---|--:|--:|--:|--:|---|--:|--:|--:|--:|--:|",
    ]
    for row in record["rows"]:
        ours = row["ours"]
        peak, share = ours["peak_bytes"], ours.get("utilisation")
        head = (
            f"| {row['subject']} | {row['shape']} | {ours['parameters']:,} | {ours['parts']} | "
            f"{'' if peak is None else f'{peak / 1e6:.0f}'} | {'' if share is None else f'{share:.0%}'} |"
        )
        for name, peer in row["peers"].items():
            if (word := table.untimed(peer)) is not None:
                text.append(f"{head} {name} | | | {word} | | |")
                continue
            text.append(
                f"{head} {name} | {table.milliseconds(ours['seconds'])} | "
                f"{table.milliseconds(peer['seconds'])} | {timing.shown(peer['times_as_long'])} | "
                f"{ours['own_difference']:.0e} | {peer['difference']:.0e} |"
            )
    for name, over in record["geometric_means"].items():
        text += ["", f"Geometric mean of the ratios of {name}: {timing.shown(over)}."]
    return "\n".join([*text, *table.ending(record)]) + "\n"
