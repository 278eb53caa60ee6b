"""Runs the `quick` preset of every experiment and writes one page with all results (`make run`).

    python -m experiments.tour --out=tour

The page is `tour/index.html` (no network needed); the tables are also printed. An interrupted tour continues
where it stopped; a finished one starts from the beginning.
"""

import html
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from absl import app, flags

from experiments import runtime
from experiments.registry import EXPERIMENTS

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>The tour</title><style>
body {{ font: 16px/1.5 system-ui, sans-serif; color: #222 }}
body {{ max-width: 56rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse; margin: 1rem 0 }} th, td {{ padding: .3rem .8rem; text-align: left }}
th {{ border-bottom: 2px solid #888 }} td {{ border-bottom: 1px solid #ddd }}
figure {{ margin: 1.5rem 0 }} img {{ max-width: 100% }} figcaption, .note {{ color: #555; font-size: .9rem }}
</style></head><body>
<h1>The tour</h1>
<p class="note">The <code>quick</code> preset of every experiment, run here in {seconds:.0f} s.</p>
{stops}
</body></html>
"""


def make(out: Path) -> None:
    """Runs all experiments and writes the page to the directory `out`."""
    start_afresh_if_finished(out)
    began = time.monotonic()
    stops: dict[str, runtime.Stop] = {}
    shown = [experiment for experiment in EXPERIMENTS.values() if experiment.tour_stop]
    for number, experiment in enumerate(shown, 1):
        print(f"experiment {number} of {len(shown)}: {experiment.name}", flush=True)
        stops[experiment.name] = run_stop(experiment, out / experiment.name)
    (out / "index.html").write_text(page(stops, out, time.monotonic() - began), encoding="utf-8")
    for stop in stops.values():
        print(f"\n{stop.title}\n{table(stop.rows)}\n{stop.meaning}\n({stop.caveat})")
    print(f"\nThe page: {out / 'index.html'}")


def start_afresh_if_finished(out: Path) -> None:
    """Removes the files of a finished tour, which is recognized by its page.

    Raises:
        app.UsageError: if the directory contains anything that a tour does not create.
    """
    page_file = out / "index.html"
    others = sorted(entry.name for entry in out.glob("*") if entry.name not in {*EXPERIMENTS, page_file.name})
    if others:
        raise app.UsageError(
            f"--out: got {out}, which contains {others[0]!r}, expected an empty or a tour's directory"
        )
    if page_file.exists():
        page_file.unlink()  # first, so that a kill in between leaves an unfinished tour and no stale page
        for name in EXPERIMENTS:
            shutil.rmtree(out / name, ignore_errors=True)


def run_stop(experiment: runtime.Experiment, directory: Path) -> runtime.Stop:
    """Runs an experiment's `quick` preset, continuing an interrupted run unless the preset has changed."""
    assert experiment.tour_stop
    config = experiment.presets("quick")
    try:
        return experiment.tour_stop(directory, config)
    except runtime.WorkdirError as error:
        print(f"cannot continue the interrupted run in {directory}, starting over: {error}")
        shutil.rmtree(directory)
        return experiment.tour_stop(directory, config)


def page(stops: Mapping[str, runtime.Stop], out: Path, seconds: float) -> str:
    """Renders the page as HTML, with relative links to the figures."""
    parts = []
    for stop in stops.values():
        columns = list(stop.rows[0])
        head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(row[column])}</td>" for column in columns) + "</tr>"
            for row in stop.rows
        )
        figures = "".join(
            f'<figure><img src="{html.escape(path.relative_to(out).as_posix())}" '
            f'alt="{html.escape(caption)}"><figcaption>{html.escape(caption)}</figcaption></figure>'
            for path, caption in stop.figures.items()
        )
        parts.append(
            f"<h2>{html.escape(stop.title)}</h2><p>{html.escape(stop.meaning)}</p>"
            f"<table><tr>{head}</tr>{body}</table>{figures}"
            f'<p class="note">{html.escape(stop.caveat)}</p>'
        )
    return _PAGE.format(seconds=seconds, stops="\n".join(parts))


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Formats rows as plain text with aligned columns."""
    columns = list(rows[0])
    widths = {column: max(len(column), *(len(row[column]) for row in rows)) for column in columns}
    lines = ["  ".join(column.ljust(widths[column]) for column in columns)]
    lines.append("  ".join("-" * widths[column] for column in columns))
    lines += ["  ".join(row[column].ljust(widths[column]) for column in columns) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


if __name__ == "__main__":
    flags.DEFINE_string("out", "tour", "directory for the page and the runs")
    runtime.run_program(lambda: make(Path(flags.FLAGS.out)))
