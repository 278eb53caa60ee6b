"""Released weights: each has a card that matches it, and opens with the code on the card."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from experiments import runtime, weights
from experiments.llrnn.config import CellConfig, Config
from experiments.registry import open_model
from experiments.runtime import packing, releasing
from tests.on_devices import ROOT

SHIPPED = [path.parent.relative_to(ROOT) for path in sorted(ROOT.glob(f"results/*/*/{packing.STATE}"))]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("folder", SHIPPED, ids=str)
def test_what_is_shipped_is_what_its_card_says(folder):
    """The files are also small enough for a repository."""
    text = (folder / weights.CARD).read_text(encoding="utf-8")
    assert text == weights.card(folder), f"python -m experiments.weights --card={folder}"
    assert (folder / packing.STATE).stat().st_size < 10e6
    restored = releasing.restore(folder, weights.abstract_state(folder))
    assert f"| {runtime.params_sha256(restored.state.params)} |" in text
    model = open_model(folder)
    assert f'open_model("{folder}")' in text
    assert all(leaf.size for leaf in jax.tree.leaves(model.params))


def test_there_are_some_of_each_paper():
    assert {path.parts[1] for path in SHIPPED} == {"boxworld", "kinship", "llrnn", "mathematics"}


def test_results_are_told_in_rows():
    results = {
        "parameters": 12345,
        "split": {"error": 0.01234, "interval": [0.5, 0.75], "held/out": {"count": 3}},
        "words": ["a", "b"],
        "right": True,
    }
    assert list(weights.measured(results)) == [
        ("all", "parameters 12,345"),
        ("split", "error 0.01234, interval 0.5 to 0.75"),
        ("split/held/out", "count 3"),
    ]


@pytest.mark.parametrize("config", [Config(task="parity", cell=CellConfig(name="lstm"))])
def test_a_folder_without_its_files_is_told(tmp_path, config):
    settings = tmp_path / "config.json"
    with pytest.raises(ValueError, match="no trained model"):
        weights.card(tmp_path)
    settings.write_text(json.dumps(dataclasses.asdict(config)), encoding="utf-8")
    with pytest.raises(ValueError, match=r"got no state\.safetensors, expected a released run"):
        weights.card(tmp_path)
    (tmp_path / packing.STATE).write_bytes(b"")
    with pytest.raises(ValueError, match="no summary of a finished run"):
        weights.card(tmp_path)
    with pytest.raises(runtime.CheckpointError, match="cannot be read"):
        releasing.restore(tmp_path, weights.abstract_state(tmp_path))


@pytest.mark.slow
def test_as_a_user_starts_it(tmp_path):
    """A release is unpacked and released again with the same result; wrong calls are reported."""

    def call(*arguments):
        command = [sys.executable, "-m", "experiments.weights", *map(str, arguments)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    released = Path("results/llrnn/copy")
    assert call(f"--unpack={released}", f"--to={tmp_path / 'run'}").returncode == 0
    shutil.copy(released / "summary.json", tmp_path / "run")
    assert call(f"--pack={tmp_path / 'run'}", f"--to={tmp_path / 'copy'}").returncode == 0
    again, before = (load_file(folder / packing.STATE) for folder in (tmp_path / "copy", released))
    assert again.keys() == before.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(again[name], array)
    written = (tmp_path / "copy" / weights.CARD).read_text(encoding="utf-8")
    assert written.replace((tmp_path / "copy").as_posix(), released.as_posix()) == (
        released / weights.CARD
    ).read_text(encoding="utf-8")
    failed = call(f"--pack={tmp_path}", f"--to={tmp_path / 'other'}")
    assert failed.returncode == 1
    assert "no trained model" in failed.stderr
    assert "--to: got None" in call(f"--pack={tmp_path}").stderr
