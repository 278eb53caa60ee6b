"""What is confused, and which errors are the worst."""

import json

import numpy as np
import pytest

from experiments.folnet_finetune import errors

pytestmark = pytest.mark.usefixtures("looks")


def test_labels_are_rows():
    found = errors.confusion([0, 0, 1, 2, 2, 2], [0, 2, 1, 2, 0, 0], 4)
    np.testing.assert_array_equal(found, [[1, 0, 1, 0], [0, 1, 0, 0], [2, 0, 1, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(errors.confusion([], [], 2), np.zeros((2, 2)))


def test_the_surest_errors_come_first(monkeypatch):
    wrong = [{"index": str(n), "probability": sure} for n, sure in enumerate((0.6, 0.9, 0.7))]
    assert [json.loads(line)["index"] for line in errors.worst(wrong)] == ["1", "2", "0"]
    monkeypatch.setattr(errors, "MOST", 1)
    assert [json.loads(line) for line in errors.worst(iter(wrong))] == [wrong[1]]


def test_a_picture_has_all_counts():
    counts = np.asarray([[5, 1], [0, 0]])
    axes = errors.figure_of(("good", "bad"), counts, "6 rows").axes[0]
    assert [text.get_text() for text in axes.texts] == ["5", "1", "0", "0"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["good", "bad"]
    np.testing.assert_allclose(np.asarray(axes.images[0].get_array()), [[5 / 6, 1 / 6], [0, 0]])
