"""Tables of claims in Markdown pages, written from `claims.jsonl` between two markers.

A page marks where a table stands, which claims it shows and which columns::

    <!-- claims: llrnn.* kinship.generalization; columns: claim, ours, baselines, holds -->
    <!-- end of claims -->

What lies between the markers is replaced. A pattern is a claim's id, or has `*`; rows come in the order of
the patterns. Columns are the keys of `COLUMNS`; `NAME=HEADING` gives one another heading. A column `@PART`
puts the claims whose ids differ in `.PART` alone into one row, and shows the median and range of the one that
has it.
"""

import fnmatch
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.runtime.claim_lines import Line, differences

_BLOCK = re.compile(r"(<!-- claims: (?P<spec>[^>]*?) -->\n)(?P<body>.*?)(<!-- end of claims -->)", re.DOTALL)


def number(value: float) -> str:
    """Returns a number as tables show it: three digits that count, and whole numbers with commas."""
    if value == int(value):
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return text if float(text) != round(value) else f"{value:.5g}"  # .99996 is not 1


def spread(values: Sequence[float], level: float) -> str:
    """Returns the mean over seeds with its t-interval; of one seed, its value."""
    from experiments.runtime import intervals  # SciPy takes long to import

    if len(values) < 2:
        return number(values[0]) if values else "-"
    mean, low, high = intervals.mean_interval(values, level)
    return f"{number(mean)} ({number(low)} to {number(high)})"


def _blocks(entry: Mapping[str, Any]) -> str:
    values = sorted(entry["per_seed"])
    if values[0] == values[-1]:
        return number(values[0])
    middle = len(values) // 2
    median = values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
    return f"{number(median)} ({number(values[0])} to {number(values[-1])})"


def _per_seed(entry: Mapping[str, Any]) -> str:
    return ", ".join(map(number, entry["per_seed"]))


def _each(line: Line, show: Callable[[Mapping[str, Any]], str]) -> str:
    return "; ".join(f"{entry['name']}: {found}" for entry in line["baselines"] if (found := show(entry)))


def _differences(line: Line) -> str:
    """Returns how far ours is from each compared baseline, by seed."""
    compared = [entry for entry in line["baselines"] if entry["compared"]]
    return "; ".join(
        f"{entry['name']}: {spread(differences(line['ours'], entry), line['level'])}" for entry in compared
    )


def _strongest(line: Line) -> str:
    """Returns the compared baseline with the best median, and a better one that is only reported."""
    ranked = sorted(
        (entry for entry in line["baselines"] if entry["per_seed"]),
        key=lambda entry: statistics.median(entry["per_seed"]),
        reverse=line["higher_is_better"],
    )
    if not ranked:
        return "-"
    strongest = next((entry for entry in ranked if entry["compared"]), ranked[0])
    shown = f"{strongest['name']}: {_blocks(strongest)}"
    if strongest is ranked[0]:
        return shown
    return f"{shown}; only reported, {ranked[0]['name']}: {_blocks(ranked[0])}"


def _range(values: Sequence[float]) -> str:
    low, high = (number(round(end)) for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _models(line: Line, field: str) -> str:
    values = [entry[field] for entry in (line["ours"], *line["baselines"]) if entry.get(field) is not None]
    return "; ".join(_range(value) if isinstance(value, list) else number(value) for value in values)


COLUMNS: dict[str, tuple[str, Callable[[Line], str]]] = {
    "id": ("claim", lambda line: f"`{line['id']}`"),
    "claim": ("claim", lambda line: line["claim"]),
    "measure": ("measure", lambda line: line["measure"]),
    "paper": ("the paper reports", lambda line: line["paper"] or "not asked"),
    "model": ("model", lambda line: line["ours"]["name"]),
    "subject": ("", lambda line: re.split(r" \(|: ", line["claim"])[0]),
    "ours": ("measured, per seed", lambda line: f"{line['ours']['name']}: {_per_seed(line['ours'])}"),
    "values": ("per seed", lambda line: _per_seed(line["ours"])),
    "mean": ("mean and interval", lambda line: spread(line["ours"]["per_seed"], line["level"])),
    "blocks": ("median (range)", lambda line: _blocks(line["ours"])),
    "baselines": ("baselines, per seed", lambda line: _each(line, _per_seed)),
    "baseline_means": (
        "baselines",
        lambda line: _each(line, lambda entry: spread(entry["per_seed"], line["level"])),
    ),
    "differences": ("ours minus each baseline's, by seed", _differences),
    "strongest": ("strongest baseline", _strongest),
    "against": ("compared with", lambda line: ", ".join(entry["name"] for entry in line["baselines"])),
    "parameters": ("parameters", lambda line: _models(line, "parameters")),
    "steps": ("steps", lambda line: _models(line, "steps")),
    "seconds": ("seconds", lambda line: _range(line["ours"]["seconds"]) if line["ours"]["seconds"] else "-"),
    "target": ("target", lambda line: "-" if line["target"] is None else number(line["target"])),
    "holds": (
        "confirmed",
        lambda line: (
            "given up"
            if line.get("given_up")
            else {True: "yes", False: "**no**", None: "no hypothesis"}[line["holds"]]
        ),
    ),
    "expected": (
        "expected",
        lambda line: {True: "yes", False: "no", None: "not said"}[line.get("expected")],
    ),
    "fixed": ("fixed beforehand", lambda line: (line["fixed_beforehand"] or "no")[:12]),
    "date": ("date", lambda line: line["date"]),
    "hardware": ("hardware", lambda line: line["hardware"]),
    "versions": ("versions", lambda line: line["versions"]),
    "command": ("command", lambda line: f"`{line['command']}`"),
    "commit": ("commit", lambda line: (line["commit"] or "-")[:12]),
}
"""The columns of tables: the heading, and what a line shows."""


def table(lines: Sequence[Line], patterns: Iterable[str], columns: Iterable[str]) -> str:
    """Returns a Markdown table of the claims whose ids match.

    Raises:
        ValueError: a pattern that matches no claim, or an unknown column.
    """
    chosen: dict[str, Line] = {}
    for pattern in patterns:
        found = {line["id"]: line for line in lines if fnmatch.fnmatchcase(line["id"], pattern)}
        if not found:
            raise ValueError(f"claims: got {pattern!r}, expected the id of a claim or a pattern of some")
        chosen = {**chosen, **{name: line for name, line in found.items() if name not in chosen}}
    headings, names = [], []
    for column in columns:
        name, _, heading = column.partition("=")
        if name not in COLUMNS and not name.startswith("@"):
            raise ValueError(f"columns: got {name!r}, expected some of {', '.join(COLUMNS)}, or @PART")
        headings.append(heading or (name if name.startswith("@") else COLUMNS[name][0]))
        names.append(name)
    groups: dict[str, dict[str, Line]] = {}
    # The longest part first: of "forward" and "forward.compiled", the second says more.
    parts: list[str] = sorted((name for name in names if name.startswith("@")), key=lambda part: -len(part))
    for name, line in chosen.items():
        part = next((part for part in parts if f".{part[1:]}." in f"{name}."), "")
        groups.setdefault(f"{name}.".replace(f".{part[1:]}.", ".") if part else name, {})[part] = line
    rows: list[list[str]] = [headings, ["---"] * len(headings)]
    for group in groups.values():
        first = next(iter(group.values()))
        rows.append(
            [
                COLUMNS[name][1](first)
                if name in COLUMNS
                else (COLUMNS["blocks"][1](group[name]) if name in group else "-")
                for name in names
            ]
        )
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)


def filled(text: str, lines: Sequence[Line]) -> str:
    """Returns a page's text with all of its tables written anew.

    Raises:
        ValueError: a marker without its end, or one that `table` refuses.
    """
    if text.count("<!-- claims:") != len(_BLOCK.findall(text)):
        raise ValueError("claims: got a marker without <!-- end of claims -->, expected one after each table")

    def replaced(match: re.Match) -> str:
        patterns, _, columns = match["spec"].partition("; columns: ")
        if not columns:
            raise ValueError(f"claims: got {match['spec']!r}, expected IDS; columns: NAMES")
        names = [name.strip() for name in columns.split(",")]
        return f"{match[1]}\n{table(lines, patterns.split(), names)}\n{match[4]}"

    return _BLOCK.sub(replaced, text)


def pages(root: Path) -> list[Path]:
    """Returns the Markdown pages under a folder that have tables of claims, sorted."""
    found = [root / "README.md", *root.glob("docs/**/*.md"), *root.glob("results/**/*.md")]
    return sorted(page for page in found if page.is_file() and "<!-- claims:" in page.read_text("utf-8"))
