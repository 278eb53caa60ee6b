"""Whole training steps: counted right, measured, and what cannot run is named."""

import functools

import jax
import pytest

from benchmarks import accelerator_summary, steps
from benchmarks.folnet import SMALL
from benchmarks.training import folnet_pretrain as benchmark
from folnet import FOLNetForPreTraining

SIZES = {"hidden_size": 128, "relation_size": 64, "intermediate_size": 512, "relation_intermediate_size": 256}
LARGER = SMALL.replace(**SIZES)


def test_operations_are_those_of_the_step():
    """Nearly all that XLA counts in the gradient of the loss, whatever is computed again."""
    example = jax.eval_shape(lambda: benchmark.examples(LARGER, 2, 64))
    model = FOLNetForPreTraining(LARGER)
    params = jax.eval_shape(model.init, jax.random.key(0), example["input_ids"])["params"]
    again = LARGER.replace(remat="nothing_saveable")
    ours = steps.counted(jax.grad(benchmark.counted(again)), params, example, None)
    gradient = jax.grad(functools.partial(benchmark.loss, LARGER))
    analysis = jax.jit(gradient).lower(params, example, None).cost_analysis()
    assert analysis is not None
    assert 0.93 < ours / analysis["flops"] <= 1


def test_cases_have_as_many_tokens():
    """At either length, but for those that ask how much fits."""
    chosen = benchmark.chosen()
    assert {case.batch * case.length for case in chosen[:8]} == {32 * 512}
    assert len({case.name for case in chosen}) == len(chosen)
    assert all(case.dropout == 0 for case in chosen if case.trans)


def rows(case, config=SMALL):
    found = {case.name: (config.dtype, (config, case))}
    return list(steps.rows(found, benchmark.measure, matrix=8, seconds=1e-3, budget=0))[1:]


def test_what_does_not_run_here_is_reported():
    """A kernel for another platform is a row that says so."""
    (row,) = rows(benchmark.Case(8, 2, "none", trans="gpu"))
    assert row["failed"].startswith("NotImplementedError")
    assert "gpu" in accelerator_summary.training(row)


@pytest.mark.slow
@pytest.mark.parametrize("case", benchmark.chosen(8, 16, 2)[:6:5], ids=lambda case: case.name)
def test_a_row(case):
    """In bfloat16, with dropout and without: numbers that fit together."""
    (row,) = rows(case, SMALL.replace(dtype="bfloat16"))
    tokens = case.batch * case.length
    assert row["name"] == case.name
    assert row["tokens_per_second"] == pytest.approx(tokens / row["seconds"]["median"])
    rate = row["gflop_a_token"] * 1e9 * row["tokens_per_second"] / row["utilisation"]
    assert rate > 0
    assert row["gflop_a_token"] == pytest.approx(row["gflop_a_call"] / tokens)
    assert row["peak_bytes"] > row["temporary_bytes"] > 0
    assert "tokens/s" in accelerator_summary.training(row)
