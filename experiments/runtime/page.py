"""One HTML page of `Stop`s, which needs no network, and their tables as text."""

import html
import itertools
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from experiments.runtime.experiment import Stop

WIDEST = 72
"""Maximum width of a column in a table of plain text; a longer cell takes several lines."""
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title><style>
:root {{ --ink: #1f2328; --soft: #59636e; --line: #d1d9e0; --ground: #fff; --card: #f6f8fa; --mark: #0072b2 }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --ground: #0d1117; --card: #151b23 }}
  nav a {{ color: #56b4e9 !important }} figure img {{ background: #fff; padding: .5rem }} }}
* {{ box-sizing: border-box }}
body {{ font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 0 }}
main, header > div {{ max-width: 62rem; margin: 0 auto; padding: 0 1.25rem }}
header {{ background: var(--card); border-bottom: 1px solid var(--line); padding: 2.2rem 0 1.4rem }}
h1 {{ margin: 0 0 .4rem; font-size: 1.9rem }} h2 {{ margin: 0 0 .5rem; font-size: 1.3rem }}
section {{ margin: 2rem 0; padding: 1.4rem 1.5rem; border: 1px solid var(--line); border-radius: 10px }}
.rows {{ overflow-x: auto }}
table {{ border-collapse: collapse; margin: .8rem 0; font-size: .92rem }}
th, td {{ padding: .3rem .9rem .3rem 0; text-align: left; vertical-align: top }}
th {{ border-bottom: 2px solid var(--line); white-space: nowrap }}
td {{ border-bottom: 1px solid var(--line) }}
figure {{ margin: 1rem 0 }} img {{ max-width: 100%; border-radius: 6px }}
figcaption, .note {{ color: var(--soft); font-size: .9rem }}
dl {{ margin: .8rem 0 0; padding: .8rem 1rem; background: var(--card); border-radius: 8px; font-size: .9rem }}
dt {{ color: var(--soft) }} dd {{ margin: 0 0 .5rem; overflow-x: auto; white-space: nowrap }}
nav a {{ color: var(--mark); margin-right: 1.2rem }}
</style></head><body>
<header><div><h1>{title}</h1><p>{introduction}</p><nav>{contents}</nav></div></header>
<main>
{sections}
</main></body></html>
"""


def write(path: Path, stops: Sequence[Stop], *, title: str, introduction: str) -> Path:
    """Writes the page with relative links to the figures, which are under the page's directory."""
    contents = "".join(
        f'<a href="#{number}">{html.escape(stop.title.partition(":")[0])}</a>'
        for number, stop in enumerate(stops, 1)
    )
    sections = "\n".join(_section(number, stop, path.parent) for number, stop in enumerate(stops, 1))
    text = _PAGE.format(
        title=html.escape(title),
        introduction=html.escape(introduction),
        contents=contents,
        sections=sections,
    )
    path.write_text(text, encoding="utf-8")
    return path


def _section(number: int, stop: Stop, folder: Path) -> str:
    columns = list(stop.rows[0])
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(row[column])}</td>" for column in columns) + "</tr>"
        for row in stop.rows
    )
    figures = "".join(
        f'<figure><img src="{html.escape(path.relative_to(folder).as_posix())}" '
        f'alt="{html.escape(caption)}"><figcaption>{html.escape(caption)}</figcaption></figure>'
        for path, caption in stop.figures.items()
    )
    commands = "".join(
        f"<dt>{html.escape(purpose)}</dt><dd><code>{html.escape(command)}</code></dd>"
        for purpose, command in stop.commands.items()
    )
    if commands:
        commands = f"<dl>{commands}</dl>"
    return (
        f'<section id="{number}"><h2>{html.escape(stop.title)}</h2>'
        f"<p>{html.escape(stop.meaning)}</p>"
        f'<div class="rows"><table><tr>{head}</tr>{body}</table></div>{figures}'
        f'<p class="note">{html.escape(stop.caveat)}</p>{commands}</section>'
    )


def report(stops: Iterable[Stop]) -> str:
    """Returns the stops as plain text."""
    parts = (f"\n{stop.title}\n{table(stop.rows)}\n{stop.meaning}\n({stop.caveat})" for stop in stops)
    return "\n".join(parts)


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Formats rows as plain text with aligned columns of at most `WIDEST` characters."""
    columns = list(rows[0])
    cells = [[textwrap.wrap(row[column], WIDEST) or [""] for column in columns] for row in rows]
    widths = [
        max(len(column), *(len(line) for row in cells for line in row[number]))
        for number, column in enumerate(columns)
    ]
    lines = [columns, ["-" * width for width in widths]]
    lines += [line for row in cells for line in itertools.zip_longest(*row, fillvalue="")]
    shown = (map(str.ljust, line, widths) for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in shown)
