"""Restarts within one run: which starts are made, which one continues, what is reported, and resuming."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import pytest

from experiments import runtime
from experiments.llrnn import train
from experiments.llrnn.config import Config
from experiments.runtime import restarts
from experiments.runtime.restarts import SEEDS_APART, STARTS
from tests.experiments.llrnn.small import LEARNED

SMALL = dataclasses.replace(LEARNED, restarts=3, restart_steps=2)
search = functools.partial(restarts.train, accuracy=lambda metrics: 1 - metrics["error"])


class Fits:
    """Stands for training: starts end with the given losses and errors, and nothing is computed."""

    def __init__(self, *ends: tuple[float, float] | None, stop_at: int | None = None):
        self.ends, self.stop_at, self.calls = list(ends), stop_at, []

    def __call__(self, config: Config, workdir: Path, more: Any) -> runtime.FitResult:
        self.calls.append((config, workdir))
        if more is not None:
            return runtime.FitResult(None, None, config.steps, {}, more(), 2.0, {})
        end = self.ends[int(workdir.name)]
        if end is None:
            raise runtime.NonFiniteLoss("the loss is nan", 1, None)
        step = 1 if int(workdir.name) == self.stop_at else config.steps
        return runtime.FitResult(None, None, step, {"loss": end[0], "error": end[1]}, {}, 0.5, {})


def test_the_start_of_least_loss_continues_whatever_its_accuracy(tmp_path):
    """With its optimizer's state; the starts have seeds of their own and no evaluation."""
    fits = Fits((0.5, 0.2), (0.25, 0.5), (0.75, 0.1))
    found = search(dataclasses.replace(SMALL, checkpoint_every=4), tmp_path, fits)
    *starts, (last, where) = fits.calls
    results = found.results
    assert found.train_seconds == 3 * 0.5 + 2
    assert [config.seed for config, _ in starts] == [5, 5 + SEEDS_APART, 5 + 2 * SEEDS_APART]
    assert [folder for _, folder in starts] == [tmp_path / STARTS / name for name in "012"]
    assert all((c.steps, c.eval_every, c.restarts, c.init_from) == (2, 0, 1, "") for c, _ in starts)
    assert all(c.checkpoint_every == 2 for c, _ in starts)  # at its end, from where one continues
    assert where == tmp_path
    assert (last.init_from, last.init_optimizer) == (f"{STARTS}/1", True)
    assert (last.steps, last.seed, last.restarts) == (4, 5, 1)
    assert [start["accuracy"] for start in results["starts"]] == [0.8, 0.5, 0.9]
    assert (results["best_start"], results["success_rate"], results["starts_seconds"]) == (1, 0, 3 * 0.5)


def test_no_start_follows_a_success(tmp_path):
    """The bar is inclusive; the rate counts the starts that were made; one that diverged is a failure."""
    config = dataclasses.replace(SMALL, restart_accuracy=0.875, restarts=4)
    fits = Fits((0.9, 0.6), None, (0.8, 0.125), (0.1, 0.0))
    results = search(config, tmp_path, fits).results
    assert len(fits.calls) == 4
    assert results["success_rate"] == pytest.approx(1 / 3)
    assert results["best_start"] == 2
    assert results["starts"][1] == {"seed": 5 + SEEDS_APART, "loss": None, "accuracy": 0.0}
    json.dumps(results, allow_nan=False)


def test_all_starts_diverge(tmp_path):
    """The last one's error is raised; not if one of them did not diverge."""
    with pytest.raises(runtime.NonFiniteLoss, match="the loss is nan at step 1"):
        search(SMALL, tmp_path, Fits(None, None, None))
    assert search(SMALL, tmp_path, Fits((0.5, 0.2), None, None)).results["best_start"] == 0


def test_the_end_of_a_session_ends_the_starts(tmp_path):
    """What is left of its time is handed on, and the unfinished start is returned, of too few steps."""
    fits = Fits((0.9, 0.6), (0.8, 0.5), stop_at=1)
    result = search(dataclasses.replace(SMALL, session_seconds=100.0), tmp_path, fits)
    assert (result.step, len(fits.calls)) == (1, 2)
    seconds = [config.session_seconds for config, _ in fits.calls]
    assert 100 >= seconds[0] > seconds[1] > 90


def test_starts_may_be_as_short_as_a_step_and_as_long_as_the_run():
    for steps in (1, 4):
        dataclasses.replace(SMALL, restart_steps=steps, log_every=1, restart_accuracy=0).validate()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"restarts": 0}, "restarts: got 0, expected at least 1"),
        ({"restart_steps": 0}, "restart_steps: got 0, expected a multiple of log_every=2 from 1 to steps=4"),
        ({"restart_steps": 6}, "restart_steps: got 6, expected a multiple of log_every=2 from 1 to steps=4"),
        ({"restart_steps": 3}, "restart_steps: got 3, expected a multiple"),
        ({"init_from": "runs/x"}, "init_from: got 'runs/x', expected none with restarts=3"),
        ({"max_seconds": 2.0}, r"max_seconds: got 2\.0, expected none with restarts=3"),
        ({"restart_accuracy": -1.0}, r"restart_accuracy: got -1\.0, expected at least 0"),
    ],
)
def test_a_mistake_is_named(change, message):
    config = dataclasses.replace(SMALL, **change)
    with pytest.raises(ValueError, match=message):
        config.validate()
    with pytest.raises(ValueError, match=message):  # before the first start
        train.train(config, None)


@pytest.mark.slow  # nine sessions; the tests above are its witnesses by default
@pytest.mark.usefixtures("compiled_quickly")
def test_a_run_stopped_in_a_start_and_continued_is_the_run_that_was_not(tmp_path):
    """To the bit; it continues from the best start, and a finished run returns at once."""
    config = dataclasses.replace(SMALL, log_every=1, restarts=2, eval_every=0)
    whole = train.train(config, tmp_path / "whole")
    cut = dataclasses.replace(config, session_seconds=1e-3)
    steps = [train.train(cut, tmp_path / "cut").step for _ in range(3)]
    assert steps == [1, 1, 1]  # a step of the first start; its last and one of the second; and one of the run
    continued = train.train(config, tmp_path / "cut")
    assert continued.summary["params_sha256"] == whole.summary["params_sha256"]
    clock = "starts_seconds"
    assert {**continued.results, clock: 0} == {**whole.results, clock: 0}
    assert len(whole.results["starts"]) == 2
    assert whole.results["program"]["powers"]["modulus"] == 6
    assert train.train(config, tmp_path / "whole").summary == whole.summary
    best = f"{STARTS}/{whole.results['best_start']}"
    begun = json.loads((tmp_path / "whole" / "init_from.json").read_text())
    assert (begun["init_from"], begun["misfits"]) == (best, [])
