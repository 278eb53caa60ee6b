"""The page of a run on data of your own, from its results and files."""

import html
import json
import re
import types
from pathlib import Path
from typing import Any

from experiments import runtime
from experiments.folnet_finetune import errors, page
from experiments.folnet_finetune.measures import PREDICTIONS
from folnet.tasks import own

RESULTS: dict[str, Any] = {
    "parameters": 1234567,
    "rows": {"train": 4321, "validation": 60, "test": 30},
    "best": {"step": 50, "accuracy": 0.75, "main": 0.75},
    "test": {"accuracy": 0.123456},
}


def opened() -> Any:
    """Stands for the data: two splits with labels and one without."""
    task = own.TextTask(
        name="own",
        splits=("train", "validation", "test", "new"),
        files=(("train", Path("reviews.csv")),),
        columns=own.Columns("review", None, "verdict"),
        classes=("bad", "<good>"),
        metrics=("accuracy",),
        max_length=8,
        download="",
    )
    dev = (types.SimpleNamespace(name="validation", labelled=True),)
    test = tuple(types.SimpleNamespace(name=name, labelled=name == "test") for name in ("test", "new"))
    return types.SimpleNamespace(task=task, dev=dev, test=test, measured=dev + test)


def shown(folder: Path, results: Any) -> tuple[str, list[list[str]]]:
    """Returns the page that is written, and its table rows as texts."""
    result = runtime.FitResult(None, None, 90, {}, results, 9.0, {})
    text = page.write(folder, opened(), result).read_text(encoding="utf-8")
    rows = re.findall("<tr>(.*?)</tr>", text)
    return text, [[html.unescape(cell) for cell in re.findall("<t[hd]>(.*?)</t[hd]>", row)] for row in rows]


def test_scores_pictures_and_the_first_errors(tmp_path):
    folder = tmp_path / PREDICTIONS
    folder.mkdir()
    errors = [
        {"index": str(n), "label": "bad", "first": "a < b", "words": ["x", "y"]}
        for n in range(page.SHOWN + 3)
    ]
    errors[1] |= {"second": "c"}
    (folder / "own_test_errors.jsonl").write_text("".join(json.dumps(line) + "\n" for line in errors))
    (folder / "own_validation_errors.jsonl").write_text("")
    (folder / "own_validation_confusion.png").write_bytes(b"")
    text, rows = shown(tmp_path, RESULTS | {"cut_off": {"train": 2, "test": 3}})
    assert rows[:3] == [
        ["data", "measure", "value"],
        ["validation", "accuracy", "0.75"],
        ["test", "accuracy", "0.1235"],
    ]
    assert rows[3] == ["index", "label", "first", "words", "second"]
    assert rows[4] == ["0", "bad", "a < b", "x y", ""]
    assert rows[5][-1] == "c"
    assert len(rows) == 4 + page.SHOWN
    assert "after update 50 of 90" in text
    assert (
        "4,321 rows, 1,234,567 parameters. Longer than a model's input, and cut off: 5 texts."
        in html.unescape(text)
    )
    assert "Read: kind class, first review, label verdict. Trained on" in text
    assert "The worst errors on test" in text
    assert f"{page.SHOWN} of the {page.SHOWN + 3} in predictions/own_test_errors.jsonl" in text
    assert "errors on validation" not in text  # none
    assert re.findall('<img src="(.*?)"', text) == ["predictions/own_validation_confusion.png"]
    assert "FOLNet fine-tuned: bad, &lt;good&gt;" in text
    assert "reviews.csv" in text


def test_texts_may_have_line_ends_that_are_not_of_the_file(tmp_path):
    """Errors are written as they are, with other separators of lines."""
    path, texts = tmp_path / "errors.jsonl", ["a\u2028b", "c\u0085d\x1c", ""]
    path.write_text("".join(errors.worst([{"first": text, "probability": 0.5} for text in texts])), "utf-8")
    assert sorted(row["first"] for row in page._errors(path)) == sorted(texts)


def test_a_run_without_errors_or_pictures_has_its_scores_alone(tmp_path):
    text, rows = shown(tmp_path, RESULTS)
    assert len(rows) == 3
    assert "cut off" not in text
    assert "<img" not in text
