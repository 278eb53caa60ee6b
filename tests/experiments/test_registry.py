"""The registry finds the experiment of every run."""

import dataclasses
import json

import pytest

from experiments import registry
from experiments.runtime.workdir import config_dict

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
