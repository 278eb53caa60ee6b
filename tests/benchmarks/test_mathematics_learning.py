"""The comparison: which runs there are, lines to table and figures."""

import copy
import json

import pytest

from benchmarks import mathematics_learning as learning
from experiments.mathematics.figures import ALWAYS
from tests.experiments.mathematics.small import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def line(model, initialization, seed, right):
    modules = {"numbers__gcd": {"right": right, "total": 10}, "numbers__lcm": {"right": 10, "total": 10}}
    split = {"split": "interpolate", "average": (right / 10 + 1) / 2, "above_95": 1, "modules": modules}
    always = copy.deepcopy(split) | {"average": 0.25}
    return {
        "preset": "modules", "model": model, "initialization": initialization, "seed": seed, "steps": 4,
        "train_seconds": 1.5, "versions": {"jax": "0"}, "date": "today",
        "results": {"parameters": 1234, "interpolate": split, "commonest_answer": {"interpolate": always}},
    }  # fmt: skip


LINES = [
    line("transformer", "xavier", 0, 2),
    line("tp_transformer", "xavier", 1, 6),
    line("tp_transformer", "xavier", 0, 4),
    line("tp_transformer", "xavier", 0, 0) | {"preset": "other"},
]


def test_models_of_a_comparison_have_as_many_parameters():
    for initialization in learning.INITIALIZATIONS:
        tp, plain = (learning.config_of(small(), name, initialization, 7) for name in learning.MODELS)
        assert (tp.model.name, plain.model.name) == learning.MODELS
        assert tp.model.initialization == plain.model.initialization == initialization
        assert tp.seed == plain.seed == 7
        assert tp.model.filter_features == small().model.filter_features
        assert abs(plain.model.parameters() / tp.model.parameters() - 1) < 0.02


def test_lines_are_grouped_by_model_and_initialisation_in_the_order_of_seeds():
    groups = learning.grouped(LINES, "modules")
    assert {name: [run["seed"] for run in runs] for name, runs in groups.items()} == {
        "TP-Transformer, xavier": [0, 1],
        "Transformer, xavier": [0],
    }


def test_the_table_has_every_seed_and_the_interval_over_them():
    rows = learning.table(LINES, "modules").splitlines()
    assert rows[-2].startswith(
        "| TP-Transformer, xavier | 1,234 | interpolate | 0.7000, 0.8000 | 0.7500 (0.1147"
    )
    assert "| 0.6000 | - |" in rows[-1]


def test_bars_are_of_all_seeds_together(tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        learning.runtime.plots, "save", lambda figure, path: drawn.update({path.name: figure})
    )
    learning.draw(LINES, "modules", tmp_path)
    (axes,) = drawn["accuracy_interpolate.png"].axes
    assert [bar.get_width() for bar in axes.containers[0]] == [0.5, 1.0]  # 4 and 6 of 10, and all
    assert axes.containers[2].get_label().startswith(ALWAYS)


@pytest.mark.slow
def test_a_comparison_is_run_recorded_and_not_run_again(tmp_path, monkeypatch):
    arguments = (small(eval_every=0), "tiny", 1, tmp_path / "runs", tmp_path / "out")
    lines = learning.compare(*arguments)
    assert len(lines) == 4
    written = (tmp_path / "out" / "learning.jsonl").read_text().splitlines()
    assert [json.loads(one) for one in written] == json.loads(json.dumps(lines))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "learning.jsonl", "learning.md", "accuracy_interpolate.png",
    }  # fmt: skip
    monkeypatch.setattr(learning.experiment, "main", None)  # calling it would fail
    assert learning.compare(*arguments) == json.loads(json.dumps(lines))
