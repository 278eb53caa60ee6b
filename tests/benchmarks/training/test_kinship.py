"""Steps on kinship problems: those of the preset, every model of it."""

import pytest

from benchmarks import accelerator_summary, steps
from benchmarks.training import kinship as benchmark
from experiments import kinship
from tests.experiments.kinship.small import small


def test_cases_are_the_preset_s():
    seen = benchmark.cases()
    assert len(seen) == 10
    for model in kinship.get_config("accelerator").models:
        dtype, config = seen[f"{model} bfloat16"]
        assert (dtype, config.model, config.sizes.dtype) == ("bfloat16", model, "bfloat16")
        assert (config.batch_size, config.sizes.hidden_size) == (512, 128)
    assert seen["jmc.atp float32"][1].sizes.dtype == "float32"


@pytest.mark.slow
def test_rows_of_two_families(monkeypatch):
    preset = small(baselines=("bert",))
    monkeypatch.setattr(benchmark.kinship, "get_config", lambda name: preset)
    found = list(steps.rows(benchmark.cases(), benchmark.measure, matrix=16, seconds=1e-3, budget=0))
    names = [row["name"] for row in found if "operations_per_second" not in row]
    assert names == ["j.a float32", "bert float32", "j.a bfloat16", "bert bfloat16"]
    for row in found:
        assert "failed" not in row
        assert accelerator_summary.training(row).startswith(row["name"])
        if "problems_per_second" in row:
            assert row["problems_per_second"] == pytest.approx(preset.batch_size / row["seconds"]["median"])
            assert row["utilisation"] > 0
            assert row["peak_bytes"] > 4 * row["parameters"]
