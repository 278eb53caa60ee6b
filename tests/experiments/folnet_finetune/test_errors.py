"""What is confused, and which errors are the worst."""

import json

import numpy as np

from experiments.folnet_finetune import errors
from experiments.folnet_finetune.data import Split
from folnet.tasks import Example, Examples


def test_labels_are_rows():
    found = errors.confusion([0, 0, 1, 2, 2, 2], [0, 2, 1, 2, 0, 0], 4)
    np.testing.assert_array_equal(found, [[1, 0, 1, 0], [0, 1, 0, 0], [2, 0, 1, 0], [0, 0, 0, 0]])


def test_the_surest_errors_come_first(monkeypatch):
    rows = [("yes", "no", 0.6), ("yes", "yes", 0.99), ("no", "yes", 0.9), ("no", "yes", 0.7)]
    texts = [Example(str(n), f"first {n}", "second" if n == 2 else None, 0) for n in range(4)]
    lines = [json.dumps({"prediction": p, "label": y, "probability": q}) + "\n" for p, y, q in rows]
    split = Split("validation", Examples(texts), None)
    found = [json.loads(line) for line in errors.worst(split, lines)]
    assert [line["first"] for line in found] == ["first 2", "first 3", "first 0"]
    assert [line.get("second") for line in found] == ["second", None, None]
    monkeypatch.setattr(errors, "MOST", 1)
    assert len(errors.worst(split, lines)) == 1


def test_a_picture_has_all_counts():
    counts = np.asarray([[5, 1], [0, 0]])
    axes = errors.figure_of(("good", "bad"), counts, "6 rows").axes[0]
    assert [text.get_text() for text in axes.texts] == ["5", "1", "0", "0"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["good", "bad"]
    np.testing.assert_allclose(np.asarray(axes.images[0].get_array()), [[5 / 6, 1 / 6], [0, 0]])
