"""The programs as a user starts them with mistakes: one line, before anything is compiled or written."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

STARTS = """
import json, os, runpy, sys, warnings
sys.modules["matplotlib"] = None
import experiments.boxworld
assert not {"experiments.boxworld.analysis", "experiments.boxworld.figures"} & set(sys.modules)
del sys.modules["matplotlib"]
from experiments.boxworld import analysis, play
warnings.filterwarnings("ignore", message=".*fork")
for program, *flags in json.loads(sys.argv[1]):
    if not os.fork():
        sys.argv = [program, *flags]
        try:
            runpy.run_path(program, run_name="__main__")
        except SystemExit as end:
            sys.stdout.flush()
            os._exit(end.code if isinstance(end.code, int) else 1)
        os._exit(0)
    print("ended with", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""
"""Starts programs with flags, each in a fork of one process, since importing is most of it.

Before that, training needs nothing that draws: Matplotlib is optional, and a program that is loaded with its
package warns when it is started.
"""


def test_mistakes_end_in_one_line(tmp_path):
    """A board that cannot be, weights that are not there, and playing without a terminal."""
    train = ("__main__.py", "--config=quick", f"--workdir={tmp_path}/run")
    nothing = f"{tmp_path}/nothing"
    cases = {
        (*train, "--config.board.max_length=9"): "error: board: ",
        ("analysis.py", f"--weights={nothing}", f"--out={tmp_path}/out"): (
            f"weights: got '{nothing}', expected a path or one of 'boxworld/"
        ),
        ("play.py",): "expected a terminal",
        ("play.py", "--env=bridge", "--length=4"): "max_length=4",
        ("play.py", "--watch=nobody"): "weights: got 'nobody', expected a path or one of",
        ("play.py", "--env=standard", "--bridge=0.5"): "expected 0 for a Gem with one lock",
    }
    programs = [(f"{ROOT}/experiments/boxworld/{name}", *flags) for name, *flags in cases]
    started = subprocess.run(
        [sys.executable, "-c", STARTS, json.dumps(programs)],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
        check=True,
    ).stdout
    parts = started.split("ended with ")
    for message, said, end in zip(cases.values(), parts[:-1], parts[1:], strict=True):
        assert message in said
        assert end[0] == "2"
    assert len(parts[0].strip().splitlines()) == 1
    assert "Traceback" not in started
    assert "Compiling" not in started
    assert list(tmp_path.iterdir()) == []
