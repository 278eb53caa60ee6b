"""The registry finds the experiment of every run."""

import dataclasses
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import registry
from experiments.exporting.interface import Exportable
from experiments.runtime.workdir import config_dict
from tests.on_devices import ROOT

NAMES = sorted(registry.EXPERIMENTS)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_records_its_experiment(name, tmp_path):
    experiment = registry.EXPERIMENTS[name]
    config = experiment.presets(experiment.default)
    (tmp_path / "config.json").write_text(json.dumps(config_dict(config)))
    assert registry.read_run(tmp_path) == (experiment, config)
    assert json.loads((tmp_path / "config.json").read_text())["experiment"] == name


@pytest.mark.parametrize("name", NAMES)
def test_a_run_from_before_names_were_recorded_is_found(name, tmp_path):
    experiment = registry.EXPERIMENTS[name]
    config = experiment.presets(experiment.default)
    (tmp_path / "config.json").write_text(json.dumps(dataclasses.asdict(config)))
    assert registry.read_run(tmp_path) == (experiment, config)


def test_a_run_of_an_unknown_experiment_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"experiment": "chess", "seed": 0}')
    with pytest.raises(ValueError, match=f"matches no known experiment, expected one of .*{NAMES[0]}"):
        registry.experiment_of(tmp_path)


def test_a_released_run_is_read_by_its_name():
    assert registry.read_run(Path("llrnn/copy"))[0] is registry.EXPERIMENTS["llrnn"]


def test_a_model_is_opened_as_its_experiment_does(tmp_path, monkeypatch):
    """If it does."""
    experiment, asked = registry.EXPERIMENTS["reasoning"], []
    config = experiment.presets(experiment.default)
    (tmp_path / "config.json").write_text(json.dumps(config_dict(config)))
    with pytest.raises(ValueError, match="got a run of 'reasoning', whose models cannot be opened"):
        registry.open_model(tmp_path)

    def open_it(path, **chosen):
        asked.append((path, chosen))
        return Exportable("kind", lambda params, inputs: {}, {}, {}, {}, source={"step": 3})

    opening = dataclasses.replace(experiment, open_model=open_it)
    monkeypatch.setitem(registry.EXPERIMENTS, "reasoning", opening)
    source = registry.open_model(tmp_path, step=3, seed=2).source
    assert asked == [(tmp_path, {"step": 3, "seed": 2})]
    assert (source["experiment"], source["run"], source["step"]) == (
        "experiments.reasoning", str(tmp_path), 3,
    )  # fmt: skip


def test_importing_the_experiments_does_not_initialize_the_devices():
    """`jax.distributed.initialize`, which connects the processes of a run, fails if it is called later."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    code = f"import jax, experiments.registry; jax.distributed.initialize({address!r}, 1, 0)"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
