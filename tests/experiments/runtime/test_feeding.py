"""Host batches of different shapes: when they are compiled, and what counts as compilation time."""

import contextlib
from typing import Any
from unittest import mock

import chex
import jax
import numpy as np
import pytest
import regression  # pyrefly: ignore[missing-import]
from regression_config import Config  # pyrefly: ignore[missing-import]

from experiments.runtime import feeding

pytestmark = pytest.mark.usefixtures("compiled_quickly")

NOTHING: Any = None


def batch_of(step):
    random = np.random.default_rng(step)
    x, y = random.normal(size=(16, 4)).astype(np.float32), random.normal(size=(16, 3)).astype(np.float32)
    return {"x": x, "y": y, "mask": random.uniform(size=(16, 3)) < 0.4, "offset": np.float32(0)}


def widened(step):
    """Returns the same batch, in two of three steps with an extra array that the loss ignores."""
    batch = batch_of(step)
    if step % 3:
        batch["spare"] = np.zeros((16, step % 3), np.float32)
    return batch


def run(batches, **fields):
    config = Config(
        **{"steps": 12, "batch_size": 16, "log_every": 4, "checkpoint_every": 4, "lr": 0.05, **fields}
    )
    return regression.main(config, sample=None, batches=batches, quiet=True)


def test_steps_of_several_shapes_are_the_same_steps():
    """An extra array changes the batch's shape, and thus the program, but not the result."""
    plain, several = run(batch_of), run(widened)
    assert several.step == 12
    for name, leaf in plain.params.items():
        np.testing.assert_allclose(several.params[name], leaf, rtol=1e-6)
    assert several.metrics["loss"] == pytest.approx(plain.metrics["loss"], rel=1e-6)


def test_each_shape_is_compiled_once_when_it_is_first_met(monkeypatch):
    compiled = []
    compile_step = feeding.Program.compile_step

    def counted(self, state, batch):
        compiled.append(batch["spare"].shape[1] if "spare" in batch else 0)
        return compile_step(self, state, batch)

    monkeypatch.setattr(feeding.Program, "compile_step", counted)
    met = []

    def batches(step):
        shape = (0, 0, 0, 0, 1, 1, 0, 2, 1, 0, 2, 2)[step]
        met.append(shape)
        return widened(shape)

    run(batches)
    assert compiled == [0, 1, 2]
    assert met == [0, 0, 0, 0, 1, 1, 0, 2, 1, 0, 2, 2]


def test_each_process_feeds_its_rows_of_a_batch(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    program: Any = mock.Mock(task=mock.Mock(batch_size=16), place_batch=lambda batch: batch)
    fed = feeding.Fed(program, lambda step: {"x": np.zeros(8 * (1 + step))}, 2)
    with contextlib.closing(fed):
        fed.prepare(NOTHING, 0, 1)
        with pytest.raises(ValueError, match=r"batch\['x'\]: got shape \(16,\), .* batch_size=8"):
            fed.prepare(NOTHING, 1, 1)


def test_a_shape_met_late_is_compilation_not_training(monkeypatch):
    """Compiling is made to take one second, which must count for `compile_seconds` only, and is reported."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    compile_step = feeding.Program.compile_step

    def slow(self, state, batch):
        clock[0] += 1000.0
        return compile_step(self, state, batch)

    monkeypatch.setattr(feeding.Program, "compile_step", slow)
    result = run(lambda step: widened(step // 6), steps=12)
    assert result.summary["compile_seconds"] == 2000.0
    assert result.train_seconds == 0.0


def test_a_late_shape_is_noted(capsys):
    config = Config(steps=6, batch_size=16, log_every=3, checkpoint_every=6)
    regression.main(config, sample=None, batches=lambda step: widened(min(step, 1)))
    shown = capsys.readouterr().err
    assert shown.count("compiled in") == 1
    assert shown.count("compiled for a new batch shape in") == 1


def test_a_resumed_run_of_several_shapes_is_the_same_run(tmp_path):
    straight = run(widened)
    config = Config(steps=8, batch_size=16, log_every=4, checkpoint_every=4, lr=0.05)
    regression.main(config, sample=None, batches=widened, quiet=True, workdir=tmp_path)
    config.steps = 12
    again = regression.main(config, sample=None, batches=widened, quiet=True, workdir=tmp_path)
    chex.assert_trees_all_equal(straight.params, again.params)
