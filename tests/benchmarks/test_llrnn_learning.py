"""The claims: lines of runs to figures and table."""

import dataclasses
import json

import pytest
from absl import app

from benchmarks import llrnn_learning
from experiments.llrnn import config as presets


def tiny(preset):
    """The preset's shape in a second."""
    config = getattr(presets, preset)()
    return dataclasses.replace(
        config,
        task_options=presets.TaskOptions(train_lengths=(1, 2), test_lengths=(3,)),
        steps=2, log_every=1, checkpoint_every=1, eval_every=1, batch_size=4, eval_examples=8,
        final_examples=8,
    )  # fmt: skip


@pytest.mark.slow
def test_lines_figures_and_table(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(llrnn_learning.presets, "get_config", tiny)
    monkeypatch.setattr(llrnn_learning, "SHOWN", {"copy": ("train/error_3",)})
    out = tmp_path / "results"
    lines = llrnn_learning.run("copy", 0, tmp_path / "run")
    assert [(line["model"], line["seed"]) for line in lines] == [("ntm", 0), ("lstm", 0)]
    assert all(line["results"]["train/error_3"]["symbols"] == 8 * 3 for line in lines)
    assert [point["step"] for point in lines[0]["curve"]] == [1, 2]

    other = {"train/error_2": {"error": 0.5}, "train/error_3": {"error": 0.25}}
    lines += [{**line, "seed": 1, "results": other} for line in lines]
    out.mkdir()
    (out / "learning.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    llrnn_learning.claim([], tmp_path / "runs", out)
    table = (out / "learning.md").read_text()
    error = lines[0]["results"]["train/error_3"]["error"]
    assert f"| NTM | {lines[0]['parameters']} | train/error_3 | {error:.4f}, 0.2500 |" in table
    assert table in capsys.readouterr().out
    picture = (out / "copy.png").read_bytes()
    (out / "copy.png").unlink()
    llrnn_learning.claim([], tmp_path / "runs", out)
    assert (out / "copy.png").read_bytes() == picture


def test_an_unknown_preset_is_refused(tmp_path):
    with pytest.raises(app.UsageError, match="'authors_copy' is not among quick, copy, word_problem"):
        llrnn_learning.claim(["authors_copy"], tmp_path / "runs", tmp_path)


def test_band_is_the_interval_of_the_mean_within_bounds():
    mean, low, high = llrnn_learning.band([[0.0, 0.5], [1.0, 0.5]])
    assert mean == [0.5, 0.5]
    assert (low, high) == ([0.0, 0.5], [1.0, 0.5])
