"""What the tour shows of the Mathematics Dataset: questions with the answers of the model."""

import pytest

from experiments.mathematics import tour
from experiments.mathematics.load import Trained
from experiments.mathematics.tour import mix
from experiments.mathematics.train import QUESTIONS
from tp_transformer import mathematics

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_its_stop_on_the_tour_shows_worked_questions(mathematics_run, monkeypatch):
    config, workdir, results = mathematics_run
    result = results["tp_transformer"]
    monkeypatch.setattr(tour, "main", lambda config, workdir: {"tp_transformer": result})

    def answer(self, questions):
        """Stands for the model, whose answers take long to compile."""
        assert self.params is result.params
        return [str(len(question) % 10) for question in questions]

    monkeypatch.setattr(Trained, "answer", answer)
    stop = tour.tour_stop(workdir, config)
    assert len(stop.rows) == 5
    source = mathematics.open_source(workdir / QUESTIONS)
    titles = {"numbers: place value": "numbers__place_value", "numbers: is factor": "numbers__is_factor"}
    found, least = result.results["interpolate"]["modules"], []
    for index, row in enumerate(stop.rows):
        title, share = row["module"].split(": ", 2)[:2], row["module"].split(": ")[-1]
        module = titles[": ".join(title)]
        assert module == config.data.modules[index % 2]
        assert share == f"{found[module]['right'] / 12:.0%} right"
        answers = {pair.question: pair.answer for pair in source.questions("interpolate", module)}
        assert answers[row["question"]] == row["answer"]
        assert row["model's answer"] == str(len(row["question"]) % 10)
        assert row[""] == ("right" if row["model's answer"] == row["answer"] else "wrong")
    always = result.results["commonest_answer"]["interpolate"]["modules"]
    least = min(found[name]["interval"][0] - always[name]["right"] / 12 for name in config.data.modules)
    assert f"interval is at least {100 * least:.0f} points above" in stop.meaning
    assert f"{result.results['interpolate']['average']:.0%} of new questions" in stop.meaning
    assert all(path.is_file() for path in stop.figures)
    assert len(stop.figures) == 3


def test_right_and_wrong_answers_are_mixed():
    rows = [{"question": str(number), "": kind} for number, kind in enumerate(["right"] * 3 + ["wrong"] * 2)]
    assert [int(row["question"]) for row in mix(rows)] == [0, 3, 1, 4, 2]
    assert mix(rows[:2]) == rows[:2]
