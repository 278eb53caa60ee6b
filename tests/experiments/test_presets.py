"""Presets have the values of the record: what is published names one, and holds for its values only."""

import dataclasses
from typing import Any

import pytest

from experiments import registry
from experiments.runtime.workdir import flatten
from tests import recorded


@pytest.mark.parametrize("name", registry.NAMES)
def test_presets_are_those_of_the_record(name):
    """The defaults, and what differs from them in each preset."""
    experiment: Any = registry.EXPERIMENTS[name]
    usual = flatten(dataclasses.asdict(experiment.config()))
    recorded.check(__file__, name, usual)
    for preset in experiment.presets.names:
        values = flatten(dataclasses.asdict(experiment.presets(preset)))
        own = {key: value for key, value in values.items() if key not in usual or value != usual[key]}
        recorded.check(__file__, f"{name}:{preset}", own)
