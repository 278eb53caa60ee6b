"""SQuAD 2.0's published and prepared files, damage, submissions, and the path from logits to scores."""

import json
import re
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from folnet.tasks.squad import SQUAD, read_predictions
from folnet.tasks.squad_questions import Gold
from tests.folnet import small_tasks


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return small_tasks.write_squad(tmp_path_factory.mktemp("squad"))


def test_questions(root):
    """As in the file: gold answers with positions, none where only plausible answers exist."""
    for split in SQUAD.splits:
        questions = SQUAD.examples(root, split)
        assert [question.index for question in questions] == [f"q{i}" for i in range(9)]
        for question in questions:
            for gold in question.golds:
                assert question.context[gold.start :].startswith(gold.text)
        assert [question.answerable for question in questions] == [True] * 7 + [False, True]
        assert [gold.text for gold in questions[0].golds] == ["Zürich", "in Zürich", "Zürich"]
        assert questions[8] == (
            "q8",
            "What sat?",
            "A dog sat on a red car.",
            (Gold("A dog", 0),),
            "Dog",
            True,
        )


def test_from_logits_to_the_score(root, tmp_path):
    """Logits made from the labels give every answer and a perfect score; written answers can be read back."""
    questions = SQUAD.examples(root, "validation")
    features = SQUAD.features(questions, small_tasks.tokenizer())
    assert features.input_ids.shape == (9, 384)
    starts, ends = np.zeros((2, 9, 384), np.float32)
    rows = np.arange(9)
    starts[rows, features.start_positions] = ends[rows, features.end_positions] = 9
    found = SQUAD.answers(questions, features, starts, ends)
    assert [answer.text for answer in found] == [q.golds[0].text if q.golds else "" for q in questions]
    silenced = SQUAD.answers(questions, features, starts, ends, threshold=-np.inf)
    assert {answer.text for answer in silenced} == {""}
    assert not SQUAD.labelled([questions[0], questions[1]._replace(labelled=False)])
    scores = SQUAD.score(questions, found)
    assert {scores[name] for name in ("f1", "exact", "f1/answerable", "f1/unanswerable", "f1/best")} == {1.0}
    silent = SQUAD.score(questions, [answer.at(-np.inf) for answer in found])
    # "The" is all article, so silence is right there, as in the question without an answer.
    assert silent["exact"] == pytest.approx(2 / 9)
    assert silent["exact/best"] == 1.0
    assert max(silent["exact/best_threshold"], silent["f1/best_threshold"]) < 18
    path = SQUAD.write_predictions(str(tmp_path), "validation", found)
    assert read_predictions(path) == {answer.index: answer.text for answer in found}
    assert "中文" in path.read_text(encoding="utf-8")
    odds = json.loads((tmp_path / "squad2_validation_null_odds.json").read_text())
    assert odds == {answer.index: answer.null_odds for answer in found}


def change(path, value):
    """Returns the file with one item changed."""
    contents = small_tasks.squad()
    *way, last = path
    place = contents
    for step in way:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return json.dumps(contents)


QA = ("data", 0, "paragraphs", 0, "qas", 1)
HERE = "article 0 (Café), paragraph 0, question q1"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{}", "got no list 'data'"),
        ('{"data": []}', "got no questions"),
        ('{"data": [\n{"title": "a"', "line 2: not JSON"),
        (change(("data", 1, "paragraphs"), None), "article 1: got no list 'paragraphs'"),
        (change((*QA[:4], "context"), 3), "article 0 (Café), paragraph 0: got no text 'context'"),
        (change((*QA, "id"), None), "article 0 (Café), paragraph 0, question 1: got no text 'id'"),
        (change((*QA, "question"), None), f"{HERE}: got no text 'question'"),
        (change((*QA, "is_impossible"), None), f"{HERE}: got is_impossible None, expected true or false"),
        (change((*QA, "is_impossible"), True), f"{HERE}: got is_impossible True with 2 answers"),
        (
            change((*QA, "answers", 1, "answer_start"), 3),
            f"{HERE}: got the answer 'dog', expected it in the context at 3",
        ),
        (change((*QA, "answers", 0, "text"), " "), f"{HERE}: got the answer ' ', expected it"),
        (change((*QA, "id"), "q0"), "duplicate question q0"),
    ],
)
def test_damage_is_named(tmp_path, text, error):
    """The file and the question are named, or the line of invalid JSON."""
    path = small_tasks.write(tmp_path / "dev-v2.0.json", text)
    with pytest.raises(ValueError, match=re.escape(error)) as raised:
        SQUAD.examples(tmp_path, "validation")
    assert str(raised.value).startswith(str(path))


def test_what_is_missing_and_what_is_no_prediction(tmp_path):
    """The error gives the addresses."""
    with pytest.raises(
        ValueError, match=r"expected squad2's train: train-v2\.0\.json.*curl .*dev-v2\.0\.json; or tfds"
    ):
        SQUAD.check(tmp_path)
    path = small_tasks.write(tmp_path / "answers.json", '{"q0": "a", "q1": 1}')
    with pytest.raises(ValueError, match="expected an object of answers"):
        read_predictions(path)


with tfds.core.registered.skip_registration():

    class Squad(tfds.core.GeneratorBasedBuilder):
        """The features of TFDS's `squad/v2.0`."""

        BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="v2.0", version="3.0.0")]  # noqa: RUF012
        url_infos = {}  # noqa: RUF012 -- nothing is downloaded

        def _info(self):
            text = tfds.features.Text()
            answers = tfds.features.Sequence({"text": text, "answer_start": np.int32})
            features = dict.fromkeys(("id", "title", "context", "question"), text)
            features |= {"plausible_answers": answers, "answers": answers, "is_impossible": np.bool_}
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples() for split in SQUAD.splits}

        def _generate_examples(self):
            for article in small_tasks.squad()["data"]:
                for paragraph in article["paragraphs"]:
                    for qa in paragraph["qas"]:
                        lists = {
                            name: {
                                key: [a[key] for a in qa.get(name, [])] for key in ("text", "answer_start")
                            }
                            for name in ("answers", "plausible_answers")
                        }
                        plain = {key: qa[key] for key in ("id", "question", "is_impossible")}
                        yield (
                            qa["id"],
                            plain | lists | {"title": article["title"], "context": paragraph["context"]},
                        )


def test_a_prepared_copy(root, tmp_path):
    """The same questions as in the files, without TensorFlow."""
    Squad(data_dir=tmp_path, config="v2.0", file_format="array_record").download_and_prepare()
    assert SQUAD.examples(tmp_path, "train") == SQUAD.examples(root, "train")
    assert SQUAD.examples(tmp_path / "squad", "validation") == SQUAD.examples(root, "validation")
    assert "tensorflow" not in sys.modules
