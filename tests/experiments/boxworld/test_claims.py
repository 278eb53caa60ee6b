"""Claims about agents in BoxWorld: what is compared, what is measured, what is drawn."""

import json
import types
from typing import Any

import jax
import numpy as np
import pytest

from experiments.boxworld import claims


def test_the_models_are_those_of_the_claim():
    """Both agents have the parameters that the claim states and are trained for 1.2 million steps."""
    assert len(claims.QUICK.models) == 2
    for model, kind in zip(claims.QUICK.models, ("simplicial", "relational"), strict=True):
        config: Any = model.config
        assert config.agent.kind == kind
        params = jax.eval_shape(config.init_params, jax.random.key(0))
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == model.parameters
        assert model.steps * config.frames_per_step == pytest.approx(1.2e6, rel=0.03)
        assert model.steps == config.steps


def test_a_measurement_is_of_the_agent_and_of_chance(tmp_path):
    lines = [
        {"step": n, "frames": 1000 * n, "train_seconds": 1.0, "episodes": 500, "solved": n / 7}
        for n in (1, 2)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    results = {"agent": {"solved": 0.75}, "chance": {"solved": 0.1}}
    run: Any = types.SimpleNamespace(workdir=tmp_path, result=types.SimpleNamespace(results=results))
    assert claims.measure(run) == {
        "solved": 0.75,
        "chance": 0.1,
        "curve": {"frames": [1000, 2000], "solved": [0.1429, 0.2857]},  # of 500 whole episodes
    }
    (tmp_path / "metrics.jsonl").write_text("")
    assert claims.measure(run)["curve"] is None


def test_curves_are_compared_at_the_same_frames():
    """Up to the end of the shorter record; means over seeds, with chance from all runs."""

    def line(frames, solved, chance):
        return {"measurements": {"curve": {"frames": frames, "solved": solved}, "chance": chance}}

    runs: Any = {
        "simplicial": [line([0, 1e6], [0.0, 1.0], 0.1), line([0, 2e6], [0.0, 1.0], 0.2)],
        "relational": [line([0, 3e6], [0.6, 0.6], 0.3), line([0, 3e6], [0.2, 0.2], 0.4)],
    }
    drawn = {line.get_label(): line for line in claims._learning(runs).axes[0].lines}
    assert list(drawn) == ["simplicial", "relational", "random policy"]
    steps, solved = drawn["simplicial"].get_data()
    np.testing.assert_allclose((steps[0], steps[-1], len(steps)), (0.05, 1.0, 40))
    np.testing.assert_allclose(solved, 0.75 * steps)  # the mean of x and x / 2
    steps, solved = drawn["relational"].get_data()
    assert steps[-1] == pytest.approx(3.0)
    np.testing.assert_allclose(solved, 0.4)
    steps, solved = drawn["random policy"].get_data()
    np.testing.assert_allclose((*steps, *solved), (0, 3, 0.25, 0.25))
