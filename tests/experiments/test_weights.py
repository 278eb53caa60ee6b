"""Released weights: each has a card that matches it, and opens with the code on the card."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from absl import app
from safetensors.numpy import load_file

from experiments import registry, runtime, weights
from experiments.boxworld import demonstrations
from experiments.llrnn.config import Config
from experiments.llrnn.parts import CellConfig
from experiments.registry import open_model
from experiments.runtime import packing, releasing, workdir
from tests.on_devices import ROOT

pytestmark = pytest.mark.usefixtures("compiled_quickly")

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
    params: dict[str, Any] = {}
    for name, array in load_file(folder / packing.STATE).items():
        if name.startswith("params/"):
            _, *path, last = name.split("/")
            holder = params
            for part in path:
                holder = holder.setdefault(part, {})
            holder[last] = array
    assert f"| {runtime.params_sha256(params)} |" in text
    (name,) = re.findall(r'open_model\("(.*)"\)', text)
    assert name == folder.relative_to("results").as_posix()  # which also finds it in an installed wheel
    model = open_model(name)  # which restores the state, and so checks all of it
    used = {name: part for name, part in params.items() if name != demonstrations.MARKS}
    assert sum(leaf.size for leaf in jax.tree.leaves(model.params)) == sum(
        leaf.size for leaf in jax.tree.leaves(used)
    )


@pytest.mark.parametrize("folder", SHIPPED, ids=str)
def test_what_is_shipped_can_be_continued_with_its_config(folder):
    """A field that a config has got since is declared `added`."""
    before = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = workdir.read_config(registry.EXPERIMENTS[folder.parts[1]].config, folder / "config.json")
    config.accumulate = before.get("accumulate", 1)  # as a run that is continued does
    assert workdir.config_difference(before, config) == []


def test_there_are_some_of_each_paper():
    assert {path.parts[1] for path in SHIPPED} == {"boxworld", "kinship", "llrnn", "mathematics"}


def test_results_are_reported_in_rows():
    results = {
        "parameters": 12345,
        "starts": [{"seed": 0, "loss": 1.0, "accuracy": 0.5}, {"seed": 1, "loss": 0.5, "accuracy": 0.7}],
        "best_start": 1,
        "starts_seconds": 3.5,
        "success_rate": 0.0,
        "split": {"error": 0.01234, "interval": [0.5, 0.75], "held/out": {"count": 3}},
        "words": ["a", "b"],
        "counts": [1, 2.5],
        "right": True,
    }
    assert list(weights.measured(results)) == [
        ("starts", "2, of which the one with the least training loss continued"),
        ("all", "parameters 12,345"),
        ("split", "error 0.01234, interval 0.5 to 0.75"),
        ("split/held/out", "count 3"),
    ]


@pytest.mark.parametrize("config", [Config(task="parity", cell=CellConfig.of("lstm"))])
def test_a_folder_without_its_files_is_reported(tmp_path, config):
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


def test_a_run_that_is_not_released_has_no_folder_and_no_card(tmp_path):
    experiment = registry.EXPERIMENTS["folnet_finetune"]
    config = workdir.config_dict(experiment.presets(experiment.default))
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ValueError, match="'folnet_finetune', whose runs are not released as folders"):
        weights.abstract_state(tmp_path)
    with pytest.raises(ValueError, match="'folnet_finetune', which has no card"):
        weights.card(tmp_path)


def call(monkeypatch, **given):
    """Calls the program with these flags."""
    values = {"pack": None, "unpack": None, "card": None, "to": None}
    monkeypatch.setattr(weights.flags, "FLAGS", SimpleNamespace(**values | given))
    weights.main()


def test_a_release_is_unpacked_and_released_again(tmp_path, monkeypatch, capsys):
    """With the same state and, but for its folder, the same card, which can be written anew."""
    released, run, again = Path("results/llrnn/copy"), tmp_path / "run", tmp_path / "copy"
    call(monkeypatch, unpack=str(released), to=str(run))
    assert not (run / weights.CARD).exists()
    shutil.copy(released / "summary.json", run)
    call(monkeypatch, pack=str(run), to=str(again))
    found, expected = (load_file(folder / packing.STATE) for folder in (again, released))
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
    written = (again / weights.CARD).read_text(encoding="utf-8")
    before = (released / weights.CARD).read_text(encoding="utf-8")
    assert written.replace(again.as_posix(), "llrnn/copy") == before
    (again / weights.CARD).unlink()
    call(monkeypatch, card=str(again))
    assert (again / weights.CARD).read_text(encoding="utf-8") == written
    assert capsys.readouterr().out.splitlines()[-1] == str(again / weights.CARD)


@pytest.mark.parametrize("flags", [{"pack": "run"}, {"card": "folder", "to": "folder"}])
def test_a_target_is_given_for_packing_and_unpacking_only(flags, monkeypatch):
    with pytest.raises(app.UsageError, match=r"--to: got .*, expected a folder with --pack or --unpack only"):
        call(monkeypatch, **flags)


@pytest.mark.slow
def test_as_a_user_starts_it(tmp_path):
    """A release is unpacked; wrong calls are reported in a line."""

    def call(*arguments):
        command = [sys.executable, "-m", "experiments.weights", *map(str, arguments)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    unpacked = call("--unpack=results/llrnn/copy", f"--to={tmp_path / 'run'}")
    assert unpacked.returncode == 0, unpacked.stderr
    failed = call(f"--pack={tmp_path}", f"--to={tmp_path / 'other'}")
    assert failed.returncode == 2
    assert "no trained model" in failed.stderr
    assert "--to: got None" in call(f"--pack={tmp_path}").stderr
