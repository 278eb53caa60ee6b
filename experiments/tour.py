"""Runs the `quick` preset of every experiment and writes one page with all results (`make tour`).

    python -m experiments.tour --out=tour

The page is `tour/index.html` (no network needed); the tables are also printed. An interrupted tour continues
where it stopped; a finished one starts from the beginning.
"""

import shutil
import time
from pathlib import Path

from absl import app, flags

from experiments import runtime
from experiments.registry import EXPERIMENTS
from experiments.runtime import page


def make(out: Path) -> None:
    """Runs all experiments and writes the page to the directory `out`."""
    start_afresh_if_finished(out)
    began = time.monotonic()
    stops = []
    shown = [experiment for experiment in EXPERIMENTS.values() if experiment.tour_stop]
    for number, experiment in enumerate(shown, 1):
        print(f"experiment {number} of {len(shown)}: {experiment.name}", flush=True)
        stops.append(run_stop(experiment, out / experiment.name))
    introduction = (
        f"The quick preset of every experiment, run here in {time.monotonic() - began:.0f} s. results/ has "
        "the same experiments with several seeds."
    )
    page.write(out / "index.html", stops, title="The tour", introduction=introduction)
    print(f"{page.report(stops)}\n\nThe page: {out / 'index.html'}")


def start_afresh_if_finished(out: Path) -> None:
    """Removes the files of a finished tour or showcase, which is recognized by its page.

    Raises:
        app.UsageError: if the directory contains anything that these programs do not create.
    """
    page_file = out / "index.html"
    others = sorted(entry.name for entry in out.glob("*") if entry.name not in {*EXPERIMENTS, page_file.name})
    if others:
        raise app.UsageError(
            f"--out: got {out}, which contains {others[0]!r}, expected an empty directory or one that this "
            "program wrote"
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


if __name__ == "__main__":
    flags.DEFINE_string("out", "tour", "directory for the page and the runs")
    runtime.run_program(lambda: make(Path(flags.FLAGS.out)))
