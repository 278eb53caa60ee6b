"""What the tour shows of the Mathematics Dataset: questions with the answers of the model."""

import pytest

from experiments.mathematics.tour import mix, tour_stop
from experiments.mathematics.train import QUESTIONS
from tests.experiments.mathematics.small import small
from tp_transformer import mathematics

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.slow
def test_its_stop_on_the_tour_shows_worked_questions(tmp_path):
    stop = tour_stop(tmp_path / "stop", small())
    assert len(stop.rows) == 5
    source = mathematics.open_source(tmp_path / "stop" / QUESTIONS)
    answers = {
        pair.question: pair.answer
        for module in small().data.modules
        for pair in source.questions("interpolate", module)
    }
    for row in stop.rows:
        assert answers[row["question"]] == row["answer"]
        assert row[""] == ("right" if row["model's answer"] == row["answer"] else "wrong")
    assert all(path.is_file() for path in stop.figures)
    assert len(stop.figures) == 3


def test_right_and_wrong_answers_are_mixed():
    rows = [{"question": str(number), "": kind} for number, kind in enumerate(["right"] * 3 + ["wrong"] * 2)]
    assert [int(row["question"]) for row in mix(rows)] == [0, 3, 1, 4, 2]
    assert mix(rows[:2]) == rows[:2]
