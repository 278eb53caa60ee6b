"""Whole training steps: counted right, measured, and what cannot run is named."""

import functools

import jax
import pytest

from benchmarks import folnet_pretraining as benchmark
from benchmarks.folnet import SMALL

SIZES = {"hidden_size": 128, "relation_size": 64, "intermediate_size": 512, "relation_intermediate_size": 256}
LARGER = SMALL.replace(**SIZES)


def test_operations_are_those_of_the_step():
    """Nearly all that XLA counts in the gradient of the loss, whatever is computed again."""
    ours = benchmark.model_operations(LARGER.replace(remat="nothing_saveable"), 2, 64)
    params, example = benchmark.shapes(LARGER, 2, 64)
    gradient = jax.grad(functools.partial(benchmark.loss, LARGER))
    analysis = jax.jit(gradient).lower(params, example, None).cost_analysis()
    assert analysis is not None
    assert 0.93 < ours / analysis["flops"] <= 1


def test_cases_have_as_many_tokens():
    """At either length, but for those that ask how much fits."""
    chosen = benchmark.cases()
    assert {case.batch * case.length for case in chosen[:8]} == {32 * 512}
    assert len({case.name for case in chosen}) == len(chosen)
    assert all(case.dropout == 0 for case in chosen if case.trans)


def test_a_spent_budget_is_told():
    """The rate is measured in any case, the cases are named."""
    chosen = benchmark.cases(8, 16, 2)[:2]
    found = list(benchmark.rows(SMALL, chosen, matrix=8, seconds=1e-3, budget=-1))
    assert found[0]["operations_per_second"] > 0
    assert "TFLOP/s" in benchmark.told(found[0])
    assert [row["failed"] for row in found[1:]] == ["not begun: the budget is spent"] * 2
    assert benchmark.told(found[1]).startswith(chosen[0].name)


def test_what_does_not_run_here_is_told():
    """A kernel for another platform is a row that says so."""
    case = benchmark.Case(8, 2, "none", trans="gpu")
    row = benchmark.measure(SMALL, case, 1e9, 1e-3)
    assert row["failed"].startswith("NotImplementedError")
    assert "gpu" in benchmark.told(row)


@pytest.mark.slow
@pytest.mark.parametrize("case", benchmark.cases(8, 16, 2)[:6:5], ids=lambda case: case.name)
def test_a_row(case):
    """In bfloat16, with dropout and without: numbers that fit together."""
    row = benchmark.measure(SMALL.replace(dtype="bfloat16"), case, 1e9, 1e-3)
    tokens = case.batch * case.length
    assert row["tokens_per_second"] == pytest.approx(tokens / row["seconds"]["median"])
    assert row["utilisation"] == pytest.approx(row["gflop_a_token"] * row["tokens_per_second"])
    assert row["peak_bytes"] > row["temporary_bytes"] > 0
    assert "tokens/s" in benchmark.told(row)
