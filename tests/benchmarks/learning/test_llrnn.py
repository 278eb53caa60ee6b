"""The claims: lines of runs to figures and table."""

import dataclasses

import pytest

from benchmarks import records
from benchmarks.learning import llrnn as learning
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
def test_lines_figures_and_table(tmp_path, monkeypatch):
    monkeypatch.setattr(learning.llrnn, "get_config", tiny)
    monkeypatch.setattr(learning, "SHOWN", {"copy": ("train/error_3",)})
    room = dataclasses.replace(
        learning.ROOM, experiment=dataclasses.replace(learning.ROOM.experiment, presets=tiny)
    )
    out = tmp_path / "results"
    lines = records.claim(room, "copy", room.variants, 1, tmp_path / "runs", out)
    assert records.read(out) == lines
    assert lines[0]["command"] == "python -m experiments.llrnn --config=copy --config.seed=0"
    assert [(line["model"], line["seed"]) for line in lines] == [("ntm", 0), ("lstm", 0)]
    assert all(line["results"]["train/error_3"]["symbols"] == 8 * 3 for line in lines)
    assert [point["step"] for point in lines[0]["curve"]] == [1, 2]

    other = {"train/error_2": {"error": 0.5}, "train/error_3": {"error": 0.25}}
    lines += [{**line, "seed": 1, "results": other} for line in lines]
    table = room.draw(lines, out)
    assert (out / records.TABLE).read_text() == table
    error = lines[0]["results"]["train/error_3"]["error"]
    assert f"| NTM | {lines[0]['parameters']} | train/error_3 | {error:.4f}, 0.2500 |" in table
    picture = (out / "copy.png").read_bytes()
    room.draw(lines, out)
    assert (out / "copy.png").read_bytes() == picture
