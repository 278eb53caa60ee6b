"""Presets have the values of the record: what is published names one, and holds for its values only."""

import dataclasses
from typing import Any

import pytest

from experiments import registry
from experiments.runtime.workdir import flatten
from tests import recorded


@pytest.mark.parametrize("name", registry.NAMES)
def test_presets_are_those_of_the_record(name):
    presets: Any = registry.EXPERIMENTS[name].presets
    for preset in presets.names:
        recorded.check(__file__, f"{name}:{preset}", flatten(dataclasses.asdict(presets(preset))))
