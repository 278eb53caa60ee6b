"""The tour's stop for kinship problems: this run, and the published one if present."""

import dataclasses
import json

import pytest

from experiments.kinship import measures, tour
from experiments.kinship.config import get_config

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_the_stop_shows_this_run_and_the_published_one(finished, tmp_path, monkeypatch):
    config, workdir, results = finished
    wide = dataclasses.replace(get_config("quick"), baselines=("bert",), model="j.a")
    (result,) = results.values()
    tests = {str(k): {"accuracy": k / 20} for k in range(2, 11)}
    made_up = {
        name: dataclasses.replace(
            result, results={**result.results, "tests": tests, "parameters": 1234}, train_seconds=7.4
        )
        for name in wide.models
    }
    lines = [
        measures.line(config, results["j.a"], workdir)
        | {"preset": "ablation", "seed": seed, "accuracies": {str(k): 0.5 + seed / 10 for k in range(2, 11)}}
        | {"train_seconds": 100.0 + seed}
        for seed in (0, 1)
    ]
    record = tmp_path / "learning.jsonl"
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(tour, "main", lambda config, workdir: made_up)
    monkeypatch.setattr(tour, "PUBLISHED", record)
    stop = tour.tour_stop(tmp_path / "stop", wide)
    assert [(row["model"], row["run"], row["k = 10"]) for row in stop.rows] == [
        ("FOLNet j.a", "here", "50%"),
        ("BERT", "here", "50%"),
        ("FOLNet j.a", "2 seeds, mean", "55%"),
    ]
    assert stop.rows[0]["mean, k = 4 to 10"] == "35.0%"
    assert (
        "15% of new problems of 3 facts correctly, 20% of those with 4 and 50% of those with 10"
        in stop.meaning
    )
    assert "1,234 and 1,234 parameters" in stop.caveat
    assert (tmp_path / "stop" / "published.png").exists()
    assert "101 s per model" in stop.figures[tmp_path / "stop" / "published.png"]
    monkeypatch.setattr(tour, "PUBLISHED", tmp_path / "nowhere.jsonl")
    assert len(tour.tour_stop(tmp_path / "stop", wide).rows) == 2
