"""A new experiment is one folder and one line in the registry, after which all programs know it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.on_devices import ROOT

ROOM = Path(__file__).parent / "data" / "line"
PROGRAMS = """
from pathlib import Path
from experiments import exporting, registry, tour, weights
from experiments.runtime import releasing

run, released = Path("run"), Path("released")
releasing.transfer(run, released, weights.abstract_state(run), release=True)
(released / weights.CARD).write_text(weights.card(released))
options = exporting.Options(platforms=("cpu",))
exporting.export_model(registry.open_model(released), Path("line.jaxmodel"), options)
tour.EXPERIMENTS = {"line": registry.EXPERIMENTS["line"]}
tour.make(Path("tour"))
"""
"""What `experiments.weights`, `export` and `tour` do, in one process: starting each takes seconds."""


@pytest.fixture
def run(tmp_path):
    """Runs Python in an empty directory, with a copy of the project that has one more experiment."""
    house = tmp_path / "house"
    shutil.copytree(ROOT / "experiments", house / "experiments", ignore=shutil.ignore_patterns("__pycache__"))
    for package in ("logic_zoo", "kernels", "simplicial", "tp_transformer", "folnet", "llrnn"):
        (house / package).symlink_to(ROOT / package)
    shutil.copytree(ROOM, house / "experiments" / "line")
    registry = house / "experiments" / "registry.py"
    text = registry.read_text(encoding="utf-8")
    registry.write_text(text.replace("NAMES = (\n", 'NAMES = (\n    "line",\n'), encoding="utf-8")
    assert len(registry.read_text().splitlines()) == len(text.splitlines()) + 1
    (tmp_path / "empty").mkdir()

    def run(*arguments, **options):
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path / "empty",
            env={**os.environ, "PYTHONPATH": str(house)},
            capture_output=True,
            text=True,
            check=False,
            **options,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.mark.slow  # of what it calls, each has its own tests
def test_it_trains_and_is_released_exported_and_shown(run, tmp_path):
    empty = tmp_path / "empty"
    run("-m", "experiments.line", "--config=quick", "--workdir=run")
    assert json.loads((empty / "run" / "config.json").read_text())["experiment"] == "line"
    run("-c", PROGRAMS)
    card = (empty / "released" / "README.md").read_text()
    assert "# released: a line of slope 3" in card
    assert "| limitations | It is a line. |" in card
    assert "Its slope is learned." in (empty / "tour" / "index.html").read_text()
    answered = run("line.jaxmodel", input='{"inputs": {"x": 2.0}}\n')
    assert json.loads(answered.stdout)["outputs"]["y"] == pytest.approx(6, rel=1e-3)
