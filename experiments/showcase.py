"""Shows a released model of each paper at work on new inputs and trains one from nothing (`make run`).

    python -m experiments.showcase --out=showcase

The page is `showcase/index.html` (no network needed); the tables are also printed. The inputs are drawn with
`--seed`, by default a new one each time, which the page names.
"""

import dataclasses
import secrets
import time
from pathlib import Path

from absl import flags

from experiments import runtime
from experiments.registry import EXPERIMENTS
from experiments.runtime import page
from experiments.tour import run_stop, start_afresh_if_finished

FASTEST = "llrnn"
"""The experiment whose quick preset is trained here."""
SEED = flags.DEFINE_integer("seed", None, "seed of the inputs, drawn anew if not given", lower_bound=0)


def make(out: Path, seed: int) -> None:
    """Runs the released models, trains the fastest preset and writes the page to the directory `out`."""
    start_afresh_if_finished(out)
    began = time.monotonic()
    stops = []
    for experiment in EXPERIMENTS.values():
        if experiment.showcase is not None:
            print(f"{experiment.name}: a released model on new inputs", flush=True)
            stops.append(experiment.showcase(out / experiment.name, seed))
    print(f"{FASTEST}: training from nothing", flush=True)
    trained = run_stop(EXPERIMENTS[FASTEST], out / FASTEST / "trained")
    stops.append(dataclasses.replace(trained, title=f"Trained from nothing: {trained.title}"))
    introduction = (
        f"A small released model of each paper on inputs that were drawn for this page (seed {seed}), and "
        f"one model trained from nothing, in {time.monotonic() - began:.0f} s on this machine. Each section "
        "ends with commands to continue, for the project's environment (source .venv/bin/activate); make "
        "tour trains them all (10 minutes)."
    )
    page.write(out / "index.html", stops, title="logic-zoo at work", introduction=introduction)
    print(f"{page.report(stops)}\n\nThe page: {out / 'index.html'}")


if __name__ == "__main__":
    flags.DEFINE_string("out", "showcase", "directory for the page")
    runtime.run_program(
        lambda: make(Path(flags.FLAGS.out), secrets.randbelow(10**6) if SEED.value is None else SEED.value)
    )
