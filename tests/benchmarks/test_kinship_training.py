"""Steps on kinship problems: those of the preset, every model of it."""

import pytest

from benchmarks import kinship_training as benchmark
from experiments.kinship import config as presets
from tests.experiments.kinship.small import small


def test_cases_are_the_preset_s(monkeypatch):
    seen = {}
    monkeypatch.setattr(benchmark.steps, "rows", lambda cases, measure, **sizes: seen.update(cases))
    base = presets.get_config("accelerator")
    benchmark.rows(base, benchmark.DTYPES)
    assert len(seen) == 10
    for model in base.models:
        dtype, config = seen[f"{model} bfloat16"]
        assert (dtype, config.model, config.sizes.dtype) == ("bfloat16", model, "bfloat16")
        assert (config.batch_size, config.sizes.hidden_size) == (512, 128)
    assert base.sizes.dtype == "float32"


@pytest.mark.slow
def test_rows_of_two_families():
    base = small(baselines=("bert",))
    found = list(benchmark.rows(base, ("float32", "bfloat16"), matrix=16, seconds=1e-3, budget=0))
    names = [row["name"] for row in found if "operations_per_second" not in row]
    assert names == ["j.a float32", "bert float32", "j.a bfloat16", "bert bfloat16"]
    for row in found:
        assert "failed" not in row
        assert benchmark.told(row).startswith(row["name"])
        if "problems_per_second" in row:
            assert row["problems_per_second"] == pytest.approx(base.batch_size / row["seconds"]["median"])
            assert row["utilisation"] > 0
            assert row["peak_bytes"] > 4 * row["parameters"]
