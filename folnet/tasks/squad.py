"""SQuAD 2.0 (Rajpurkar et al. 2018): which words of a paragraph answer a question, if any.

    task = tasks.TASKS["squad2"]
    questions = task.examples("data", "validation")
    features = task.features(questions, tokenizer)                   # windows of 384 tokens, stride 128
    ...                                                               # start and end logits [W, T]
    answers = task.answers(questions, features, start_logits, end_logits)
    task.score(questions, answers)                                    # {"exact": ..., "f1": ..., ...}

`squad_features` splits paragraphs into windows, `squad_answers` decides between spans and no answer, and
`squad_metrics` compares answers with those of people.
"""

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from folnet.tasks import tfds as task_tfds
from folnet.tasks.files import damaged, text_of
from folnet.tasks.interface import Task
from folnet.tasks.squad_answers import Answer
from folnet.tasks.squad_answers import answers as find_answers
from folnet.tasks.squad_features import QUERY_LENGTH, STRIDE, SpanFeatures, span_features
from folnet.tasks.squad_metrics import best_threshold, evaluate
from folnet.tasks.squad_questions import Gold, Question
from folnet.tokenization import WordPieceTokenizer
from logic_zoo.writing import write_whole

_FILES = {"train": "train-v2.0.json", "validation": "dev-v2.0.json"}
_URL = "https://rajpurkar.github.io/SQuAD-explorer/dataset"
_TFDS = "squad/v2.0"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadTask(Task[Question, SpanFeatures]):
    """The task; its test set is not published."""

    stride: int = STRIDE
    query_length: int = QUERY_LENGTH

    def find(self, directory: Path, split: str) -> Path | None:
        """Returns the file of a split, or the folder of a copy prepared by TFDS."""
        for folder in (directory, directory / "squad", directory / "SQuAD"):
            if (path := folder / _FILES[split]).is_file():
                return path
        return task_tfds.prepared(directory, _TFDS)

    def looked_for(self, split: str) -> str:
        """Returns the name of the split's file."""
        return _FILES[split]

    def examples(self, directory: str | os.PathLike[str], split: str) -> tuple[Question, ...]:
        """Reads a split.

        Raises:
            ValueError: If the file is missing or damaged; names the file, and the line (invalid JSON) or the
                question's id.
        """
        path = self.place(directory, split)
        questions = tuple(_prepared(path, split) if path.is_dir() else _published(path))
        twice = [index for index, count in Counter(q.index for q in questions).items() if count > 1]
        if twice:
            raise ValueError(f"{path}: duplicate question {twice[0]}")
        if not questions:
            raise ValueError(f"{path}: got no questions, expected at least one")
        return questions

    def labelled(self, examples: Sequence[Question]) -> bool:
        """Returns whether the answers to all questions are known; see `Task`."""
        return all(question.labelled for question in examples)

    def features(
        self, examples: Sequence[Question], tokenizer: WordPieceTokenizer, max_length: int | None = None
    ) -> SpanFeatures:
        """Returns windows over the paragraphs; see `span_features`."""
        length = self.max_length if max_length is None else max_length
        return span_features(
            examples, tokenizer, length=length, stride=self.stride, query_length=self.query_length
        )

    def answers(
        self,
        examples: Sequence[Question],
        features: SpanFeatures,
        start_logits: Float[np.ndarray, "W T"],
        end_logits: Float[np.ndarray, "W T"],
        *,
        threshold: float = 0.0,
    ) -> list[Answer]:
        """Returns the answer to every question from the logits of all windows; see `squad_answers`."""
        return find_answers(examples, features, start_logits, end_logits, threshold=threshold)

    def score(self, examples: Sequence[Question], answers: Sequence[Answer]) -> dict[str, float]:
        """Returns `exact` and `f1` at the answers' threshold, in total and by kind of question.

        See `evaluate`. `f1/best` and `f1/best_threshold` (and likewise for `exact`) are the values at the
        best threshold for these questions.
        """
        found = evaluate(examples, {answer.index: answer.text for answer in answers})
        spans = {answer.index: answer.at(np.inf).text for answer in answers}
        odds = {answer.index: answer.null_odds for answer in answers}
        for metric in self.metrics:
            best = best_threshold(examples, spans, odds, metric)
            found |= {f"{metric}/best": best.score, f"{metric}/best_threshold": best.value}
        return found

    def write_predictions(
        self, directory: str | os.PathLike[str], split: str, answers: Sequence[Answer]
    ) -> Path:
        """Writes the files that the benchmark's script reads.

        These are a JSON object of answers by question id, "" for no answer, and another of null odds, from
        which the script finds the best threshold.

        Returns:
            The path of the file of answers.
        """
        directory = Path(directory)
        odds = {answer.index: answer.null_odds for answer in answers}
        write_whole(directory / f"squad2_{split}_null_odds.json", json.dumps(odds, indent=1) + "\n")
        texts = {answer.index: answer.text for answer in answers}
        return write_whole(
            directory / f"squad2_{split}.json", json.dumps(texts, indent=1, ensure_ascii=False) + "\n"
        )


def read_predictions(path: str | os.PathLike[str]) -> dict[str, str]:
    """Reads a file of answers; raises ValueError unless it is an object of texts."""
    found = _json(Path(path).expanduser())
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise ValueError(f"{path}: got other content, expected an object of answers by question id")
    return found


def _json(path: Path) -> Any:
    text = text_of(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise damaged(path, error.lineno, f"not JSON ({error.msg}); the file may be truncated") from error


def _published(path: Path) -> Iterator[Question]:
    """Yields the questions of a published file: articles contain paragraphs, paragraphs contain questions."""
    for a, article in enumerate(_list(_json(path), "data", f"{path}")):
        title = str(article.get("title", "")) if isinstance(article, dict) else ""
        for p, paragraph in enumerate(_list(article, "paragraphs", f"{path}, article {a}")):
            here = f"{path}, article {a} ({title}), paragraph {p}"
            asked = _list(paragraph, "qas", here)
            context = _text(paragraph, "context", here)
            for q, qa in enumerate(asked):
                index = _text(qa, "id", f"{here}, question {q}")
                named = f"{here}, question {index}"
                golds = tuple(
                    Gold(_text(answer, "text", named), answer.get("answer_start"))
                    for answer in _list(qa, "answers", named)
                )
                question = Question(index, _text(qa, "question", named), context, golds, title)
                yield _checked(question, qa.get("is_impossible"), named)


def _prepared(folder: Path, split: str) -> Iterator[Question]:
    """Returns the questions of a prepared copy, sorted by id: TFDS's order differs from the file's."""
    found = []
    for where, record in task_tfds.records(folder, split):
        answers = record.get("answers", {})
        pairs = zip(answers.get("text", ()), answers.get("answer_start", ()), strict=True)
        index, asked, context, title = (
            _text(record, name, where) for name in ("id", "question", "context", "title")
        )
        question = Question(index, asked, context, tuple(Gold(*pair) for pair in pairs), title)
        found.append(_checked(question, bool(record.get("is_impossible")), where))
    return iter(sorted(found, key=lambda question: question.index))


def _checked(question: Question, impossible: Any, where: str) -> Question:
    """Checks that each answer occurs in the paragraph at its stated position."""
    if not isinstance(impossible, bool):
        raise ValueError(
            f"{where}: got is_impossible {impossible!r}, expected true or false (is this SQuAD 1.1?)"
        )
    if impossible == question.answerable:
        raise ValueError(
            f"{where}: got is_impossible {impossible} with {len(question.golds)} answers, expected answers "
            "exactly if it is false"
        )
    context = question.context
    for text, start in question.golds:
        if not isinstance(start, int) or not text.strip() or context[start : start + len(text)] != text:
            raise ValueError(f"{where}: got the answer {text!r}, expected it in the context at {start!r}")
    return question


def _list(owner: Any, name: str, where: str) -> Sequence[Any]:
    found = owner.get(name) if isinstance(owner, Mapping) else None
    if not isinstance(found, list):
        raise ValueError(f"{where}: got no list {name!r}, expected one")
    return found


def _text(owner: Any, name: str, where: str) -> str:
    found = owner.get(name) if isinstance(owner, Mapping) else None
    if not isinstance(found, str):
        raise ValueError(f"{where}: got no text {name!r}, expected one")
    return found


SQUAD = SquadTask(
    name="squad2",
    splits=tuple(_FILES),
    metrics=("f1", "exact"),
    max_length=384,
    download=f"curl -LO {_URL}/train-v2.0.json -LO {_URL}/dev-v2.0.json; or {task_tfds.command(_TFDS)}",
)
"""The task of Table 4."""
