"""What was declared about CLUTRR's published graphs."""

import dataclasses

import pytest

from experiments.kinship.clutrr_claims import CLAIMS, CLUTRR_K23


@pytest.mark.parametrize("comparison", CLAIMS, ids=lambda c: c.name)
def test_what_was_declared_about_published_graphs(comparison, tmp_path):
    """The published tests choose nothing."""
    assert (comparison.search_by, comparison.seeds) == ("generated", (10, 11, 12, 13, 14))
    for model in comparison.models:
        assert (model.config.data.clutrr, len(model.search)) == ("clutrr", 4)
        found = comparison.with_data(model.config, tmp_path)
        assert found.data == dataclasses.replace(model.config.data, clutrr=str(tmp_path))
    targets = {claim.id: (claim.tests, claim.target) for claim in comparison.claims}
    short = "clutrr.graph.k23", (), None
    name, tests, target = short if comparison is CLUTRR_K23 else ("clutrr.graph.k234", ("mean",), 0.95)
    assert targets == {name: (tests, target), f"{name}.baselines": (("unpaired",), None)}
