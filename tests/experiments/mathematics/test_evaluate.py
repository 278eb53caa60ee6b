"""Scoring weights on the modules: what is counted, what an interruption changes, and what is refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import runtime
from experiments.mathematics import evaluate, evaluation_set, figures, load, measures
from experiments.mathematics.config import ModelConfig
from experiments.runtime import torch_files
from tests.experiments.mathematics.small import MODEL, talkative
from tests.tp_transformer.small import draw, shapes
from tp_transformer import convert, mathematics
from tp_transformer.evaluation import Scores, Share, exact_match

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ROOT = Path(__file__).resolve().parents[3]
MODULES = ("numbers__place_value", "numbers__is_factor", "numbers__place_value_big")
KEYS: list[evaluation_set.Key] = [
    ("interpolate", "numbers__is_factor"),
    ("interpolate", "numbers__place_value"),
    ("extrapolate", "numbers__place_value_big"),
]


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A folder for `from_pretrained` with a model whose answers end."""
    folder = tmp_path_factory.mktemp("weights") / "model"
    talkative(mathematics.DEFAULT, seed=4, boost=3.0).save_pretrained(folder)
    return folder


@pytest.fixture
def start(weights, monkeypatch):
    """Runs the program with flags."""

    def run(out, **given):
        flags = {"weights": [str(weights)], "out": str(out), "data": None, "modules": list(MODULES)}
        flags |= {"splits": [], "questions": 12, "batch_size": 5, "beams": 1, "step": None, "num_heads": 2}
        flags |= {"processes": 1, **given}
        monkeypatch.setattr(evaluate.flags, "FLAGS", types.SimpleNamespace(**flags))
        evaluate.main()

    return run


@pytest.fixture
def by_rule(monkeypatch):
    """Answers each question with its last digit, since a model's answers take long to compile."""
    digits = mathematics.DEFAULT.encode("0123456789")[1:-1]

    def decode(model, params, source, beams=1):
        assert beams == 1
        found = np.zeros((len(source), measures.LONGEST + 1), np.int32)
        for row, question in zip(found, np.asarray(source), strict=True):
            last = [mathematics.END, *question[np.isin(question, digits)]][-1]
            row[:3] = mathematics.START, last, mathematics.END
        return jnp.asarray(found)

    match = jax.jit(exact_match, static_argnames="end")
    monkeypatch.setattr(measures, "decode", decode)
    monkeypatch.setattr(measures.evaluation, "exact_match", match)


def content(out):
    """The files of an evaluation, without hidden ones and pictures."""
    return {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and not path.relative_to(out).as_posix().startswith(".") and path.suffix != ".png"
    }


def test_scores_are_those_of_answers_as_text(start, by_rule, weights, tmp_path, capsys):
    """A line per module with its interval, a table, a figure per split, and every answer."""
    start(tmp_path / "out")
    printed = capsys.readouterr().out
    lines = [json.loads(line) for line in (tmp_path / "out" / "scores.jsonl").read_text().splitlines()]
    assert [(line["split"], line["module"]) for line in lines] == KEYS
    trained, source = load.load(weights), evaluation_set.source(KEYS)
    for line in lines:
        module = source.questions(line["split"], line["module"])
        questions = [module[index * 500 // 12] for index in range(12)]
        given = trained.answer([pair.question for pair in questions])
        path = tmp_path / "out" / "answers" / f"{line['split']}__{line['module']}.jsonl"
        head, *rows = map(json.loads, path.read_text().splitlines())
        assert {row["index"]: row["answer"] for row in rows} == dict(enumerate(given))
        right = sum(answer == pair.answer for answer, pair in zip(given, questions, strict=True))
        assert (line["right"], line["total"]) == (right, 12)
        assert line["interval"] == list(runtime.intervals.wilson_interval(right, 12))
        assert head["questions_sha256"] == line["questions_sha256"] == evaluation_set.digest(questions)
    assert 0 < sum(line["right"] for line in lines) < 12
    found = evaluation_set.digest_of_all({key: evaluation_set.digest(source.questions(*key)) for key in KEYS})
    assert f"3 modules of 500 questions, SHA-256 {found}, ok" in printed
    text = (tmp_path / "out" / "table.md").read_text()
    assert text in printed
    asked = evaluation_set.digest_of_all(
        {(line["split"], line["module"]): line["questions_sha256"] for line in lines}
    )
    assert text.startswith(
        "Exact match on 12 evenly spaced questions per module of the fixed evaluation set, 3 modules "
        f"(SHA-256 {asked}), decoded greedily.\n\n|  | param"
    )
    assert "| 0 of 2 |" in text
    assert "Saxton" not in text  # the paper's rows are of all modules
    assert "published" not in text
    assert not any("note" in line for line in lines)
    assert (tmp_path / "out" / "accuracy_interpolate.png").is_file()
    assert (tmp_path / "out" / "accuracy_extrapolate.png").is_file()


def test_an_interrupted_evaluation_ends_with_the_same_files(start, by_rule, tmp_path, monkeypatch):
    """It is stopped within a module and within a line, and started again; nothing is answered twice."""
    start(tmp_path / "whole")
    answered, calls = measures.answered, []

    def stops(*arguments):
        if len(calls) in (2, 5):
            calls.append("stopped")
            raise KeyboardInterrupt
        calls.append("answered")
        return answered(*arguments)

    monkeypatch.setattr(measures, "answered", stops)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            start(tmp_path / "parts")
    (path,) = (tmp_path / "parts" / "answers").glob("*place_value.jsonl")
    with path.open("a") as file:
        file.write('{"index": 1, "ans')
    start(tmp_path / "parts")
    assert content(tmp_path / "parts") == content(tmp_path / "whole")
    assert calls.count("answered") == 9  # three batches per module
    start(tmp_path / "parts")
    assert calls.count("answered") == 9
    with pytest.raises(runtime.WorkdirError, match=r"(?s)another config.*beams: got 2, expected 1"):
        start(tmp_path / "parts", beams=2)


def test_an_interrupted_batch_is_completed(start, by_rule, tmp_path):
    """A file cut after some of a batch's lines gets the others."""
    start(tmp_path / "whole", modules=["numbers__is_factor"])
    before = content(tmp_path / "whole")
    (path,) = (tmp_path / "whole" / "answers").iterdir()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:8]))
    start(tmp_path / "whole", modules=["numbers__is_factor"])
    assert content(tmp_path / "whole") == before
    path.write_bytes(b"".join([*lines[:3], b"{}\n", *lines[4:]]))
    with pytest.raises(ValueError, match=r"is_factor\.jsonl, line 4: damaged"):
        start(tmp_path / "whole", modules=["numbers__is_factor"])
    path.write_bytes(b"".join([lines[0], b"{}\n", *lines[2:]]))
    with pytest.raises(ValueError, match=r"is_factor\.jsonl, line 2: damaged"):
        start(tmp_path / "whole", modules=["numbers__is_factor"])
    path.write_bytes(b"".join([*lines, lines[-1]]))
    with pytest.raises(ValueError, match=r"is_factor\.jsonl: got 13 answers, expected 12"):
        start(tmp_path / "whole", modules=["numbers__is_factor"])
    path.write_bytes(b"".join([lines[0], *lines[:0:-1]]))
    with pytest.raises(ValueError, match="got answers in another order"):
        start(tmp_path / "whole", modules=["numbers__is_factor"])


def test_questions_are_asked_in_the_models_own_symbols(monkeypatch, tmp_path):
    """And its answers are read in them."""
    vocabulary = mathematics.Vocabulary.released()
    trained = load.Trained(MODEL.make(vocabulary), {}, vocabulary)
    source = mathematics.Generator(0, 5, ["numbers__is_factor"], ())
    asked = source.questions("interpolate", "numbers__is_factor")
    answers = evaluate.Answers(tmp_path / "a.jsonl", source, "interpolate", "numbers__is_factor")

    def answered(model, params, batch, beams):
        for index, row in zip(batch.index, batch.source, strict=True):
            assert vocabulary.decode(row) == asked[index].question
        return np.asarray(batch.target), np.ones(5, bool)

    monkeypatch.setattr(measures, "answered", answered)
    assert answers.complete(trained, 5, 1) == 5
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()[1:]]
    assert {row["index"]: row["answer"] for row in rows} == {n: asked[n].answer for n in range(5)}


def test_beams_and_published_files(start, weights, tmp_path):
    """The best of several beams is what `Trained.beam` finds; the files are read as they are."""
    source, data = evaluation_set.source(KEYS), tmp_path / "data"
    (data / "interpolate").mkdir(parents=True)
    asked, trained = list(source.questions("interpolate", "numbers__is_factor"))[:6], load.load(weights)
    best = [trained.beam(question, 3)[0][0] for question, _ in asked]
    # Half of the questions have the model's own answer as the right one.
    usable = {n: text for n, text in enumerate(best) if text and "\ufffd" not in text and len(text) <= 30}
    asked = [
        mathematics.Question(question, usable.get(n, answer) if n < 3 else answer)
        for n, (question, answer) in enumerate(asked)
    ]
    mathematics.write_questions(data / "interpolate" / "numbers__is_factor.txt", asked)
    start(tmp_path / "out", data=str(data), modules=[], questions=0, batch_size=1, beams=3)
    (path,) = (tmp_path / "out" / "answers").iterdir()
    rows = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    assert {row["index"]: row["answer"] for row in rows} == dict(enumerate(best))
    right = [row["right"] for row in sorted(rows, key=lambda row: row["index"])]
    assert right == [given == pair.answer for given, pair in zip(best, asked, strict=True)]
    assert 0 < sum(right) < 6
    changed = [*asked[:5], mathematics.Question("1 + 1", "2")]
    mathematics.write_questions(data / "interpolate" / "numbers__is_factor.txt", changed)
    with pytest.raises(ValueError, match="got answers to other questions"):
        start(tmp_path / "out", data=str(data), modules=[], questions=0, batch_size=1, beams=3)
    with pytest.raises(ValueError, match="--data: got no questions of extrapolate/measurement__conversion"):
        start(tmp_path / "b", data=str(data), modules=["measurement__conversion"], splits=["extrapolate"])


def test_mistakes_are_reported_before_anything_is_drawn(start, weights, tmp_path):
    for flags, message in (
        ({"modules": ["numbers__gdc"]}, "got 'numbers__gdc', expected a known name such as numbers__gcd"),
        ({"splits": ["interpolation"]}, "splits: got 'interpolation', expected .*interpolate"),
        ({"weights": [str(weights), str(weights)]}, "got the names model, model, expected different"),
        ({"weights": [str(tmp_path)]}, "not a run of experiments.mathematics"),
        ({"data": str(tmp_path)}, "directory: got"),
        ({"step": 3}, "got step 3, expected none"),
    ):
        with pytest.raises(ValueError, match=message):
            start(tmp_path / "out", **flags)
    assert not (tmp_path / "out").exists()
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").touch()
    with pytest.raises(runtime.WorkdirError, match="not empty"):
        start(tmp_path / "thesis")


def test_modules_that_are_named_must_all_be_there():
    """Without names, those that are there are evaluated."""
    two = ["numbers__is_factor", "numbers__place_value"]
    source = mathematics.Generator(0, 1, two, ())
    assert evaluate.choose(source, two, []) == evaluate.choose(source, [], ["interpolate"])
    assert evaluate.choose(source, two, []) == [("interpolate", name) for name in two]
    with pytest.raises(ValueError, match="--data: got no questions of interpolate/numbers__gcd, expected"):
        evaluate.choose(source, [*two, "numbers__gcd"], [])


def test_other_questions_than_the_sets_are_refused(start, tmp_path, monkeypatch):
    monkeypatch.setitem(evaluation_set.DIGESTS["interpolate"], "numbers__is_factor", "0" * 32)
    with pytest.raises(
        ValueError, match=r"other questions than the set's in interpolate/numbers__is_factor; expected"
    ):
        start(tmp_path / "out")
    assert not (tmp_path / "out" / "scores.jsonl").exists()


def test_the_table_is_that_of_the_paper(weights):
    """With all modules, the paper's rows follow; averages have equal weights."""
    every = {
        "interpolate": Scores("interpolate", {name: Share(400, 500) for name in mathematics.MODULES}),
        "extrapolate": Scores(
            "extrapolate", {name: Share(499, 500) for name in mathematics.EXTRAPOLATION_MODULES}
        ),
    }
    trained = load.load(weights)
    rows = evaluate.table([evaluate.row(trained, "mine", every)], complete=True).splitlines()
    assert rows[2] == (
        "| mine | 0.00734M |  | 80.00% (79.53% to 80.46%) | 0 of 56 | 99.80% (99.67% to 99.88%) | 15 of 15 |"
    )
    assert rows[-1].startswith("| TP-Transformer (Schlag et al.) | 49.2M | 1.7M | 84.24 %")
    assert {row.count("|") for row in rows} == {8}
    uneven = {
        "interpolate": Scores("interpolate", {"numbers__gcd": Share(1, 2), "numbers__lcm": Share(1, 4)})
    }
    assert evaluate.row(trained, "mine", uneven)[3:] == ["37.50%", "0 of 2", "", ""]


@pytest.mark.parametrize(
    ("total", "changes", "begins", "differs"),
    [
        (500, {}, "500 questions per module of the fixed evaluation set, 71 modules (SHA-256 ", True),
        (
            10,
            {"questions": 10},
            "10 evenly spaced questions per module of the fixed evaluation set, 71",
            True,
        ),
        (10_000, {"data": "v1"}, "10,000 questions per module of the folder of --data, 71 modules", False),
        (10_000, {"data": "v1", "beams": 4}, "10,000 questions per module of the folder of --data, 71", True),
        (9, {"data": "v1"}, "9 questions per module of the folder of --data, 71", True),
    ],
)
def test_the_caption_says_what_was_asked_and_how_it_differs_from_the_paper(total, changes, begins, differs):
    given: dict[str, Any] = {"questions": 0, "beams": 1, **changes}
    settings = evaluate.Settings("", {}, "", (), batch_size=1, **given)
    lines = [
        {"split": split, "module": name, "total": total, "questions_sha256": f"{index:064}"}
        for index, (split, name) in enumerate(evaluation_set.keys())
    ]
    text = evaluate.caption(lines, settings)
    assert text.startswith(f"Exact match on {begins}")
    assert ("with 4 beams." if "beams" in changes else "decoded greedily.") in text
    other = "The paper's are the 10,000 published questions per module, decoded greedily."
    assert (other in text) is differs
    digests = {(line["split"], line["module"]): line["questions_sha256"] for line in lines}
    assert evaluation_set.digest_of_all(digests) in text
    assert other not in evaluate.caption(lines[:-1], settings)


def test_several_weights_stand_next_to_each_other(start, by_rule, weights, tmp_path, capsys, monkeypatch):
    """Each has a folder as if it were alone; its numbers are columns, and the bars are in one figure."""
    released = mathematics.Vocabulary.released()
    other = tmp_path / "theirs"
    load.Trained(MODEL.make(released), draw(MODEL.make(released)), released).save_pretrained(other)
    drawn, bars = [], figures.bars
    monkeypatch.setattr(figures, "bars", lambda shares, **how: drawn.append([*shares]) or bars(shares, **how))
    start(tmp_path / "alone", modules=["numbers__is_factor"])
    start(tmp_path / "both", modules=["numbers__is_factor"], weights=[str(weights), str(other)])
    captured, both = capsys.readouterr(), tmp_path / "both"
    assert captured.err.count("are inferred") == 1
    assert drawn == [["model"], ["model"], ["theirs"], ["model", "theirs"]]
    assert (both / "accuracy_interpolate.png").is_file()
    assert content(both / "model") == content(tmp_path / "alone")
    text = (both / "table.md").read_text()
    assert text in captured.out
    assert [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")] == [
        "", "---", "model", "theirs", "", "---", "interpolate/numbers__is_factor",
    ]  # fmt: skip
    right = [json.loads((both / name / "scores.jsonl").read_text())["right"] for name in ("model", "theirs")]
    assert f"| interpolate/numbers__is_factor | {right[0] / 12:.2%} | {right[1] / 12:.2%} |" in text
    # What is inferred is said where the numbers are.
    assert text.endswith(f"\n\ntheirs: {released.note}\n")
    line = json.loads((both / "theirs" / "scores.jsonl").read_text())
    assert line["note"] == json.loads((both / "theirs" / "config.json").read_text())["note"] == released.note
    assert released.note in (both / "theirs" / "table.md").read_text()
    with pytest.raises(runtime.WorkdirError, match="another config"):
        start(both, modules=["numbers__is_factor"])


def test_bars_have_their_intervals():
    scores = Scores("interpolate", {"numbers__gcd": Share(3, 4), "numbers__lcm": Share(1, 4)})
    (axes,) = figures.bars({"a": scores}, title="t", intervals=True).axes
    drawn: list[Any] = [line.get_xdata() for line in axes.get_lines()]
    spans = [tuple(ends) for ends in drawn if np.ptp(ends)]
    assert spans == [runtime.intervals.wilson_interval(3, 4), runtime.intervals.wilson_interval(1, 4)]


def test_the_set_is_every_modules(weights):
    """71 of them, each with its digest; names in both splits belong to both."""
    every = evaluation_set.keys()
    assert len(every) == 71
    assert {(split, name) for split, names in evaluation_set.DIGESTS.items() for name in names} == set(every)
    assert all(len(found) == 32 for names in evaluation_set.DIGESTS.values() for found in names.values())
    assert len(evaluation_set.keys(["measurement__conversion"])) == 2
    assert evaluation_set.keys(["measurement__conversion"], ["extrapolate"]) == [
        ("extrapolate", "measurement__conversion")
    ]


@pytest.fixture(scope="module")
def every_question(tmp_path_factory):
    """The folder of all 71 modules, drawn as the program draws them; takes a minute or two."""
    folder = tmp_path_factory.mktemp("set") / evaluate.QUESTIONS
    mathematics.generate(folder, evaluation_set.source(evaluation_set.keys()), show=False)
    return folder


@pytest.mark.slow
def test_all_modules_are_drawn_as_recorded(every_question):
    """Test of three modules that runs by default: `test_scores_are_those_of_answers_as_text`."""
    source = mathematics.TextDirectory(every_question)
    every = evaluation_set.keys()
    digests = {key: evaluation_set.digest(source.questions(*key)) for key in every}
    assert {len(source.questions(*key)) for key in digests} == {evaluation_set.QUESTIONS}
    recorded = {
        (split, name): of for split, names in evaluation_set.DIGESTS.items() for name, of in names.items()
    }
    assert {key: found[:32] for key, found in digests.items()} == recorded
    assert evaluation_set.digest_of_all(digests) == evaluation_set.DIGEST


@pytest.mark.slow
def test_killed_twice_it_scores_the_authors_file_as_if_it_had_not_been(every_question, tmp_path):
    """The program as a user starts it, on all 71 modules, with a file of the authors' names and shapes.

    Parameters are random: 49 M, of 73 symbols. Questions are drawn beforehand, and compiled programs kept.
    """
    vocabulary = mathematics.Vocabulary.released()
    model: Any = ModelConfig().make(vocabulary)
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes(model))) == 49_178_624
    torch_files.save(tmp_path / "best.pt", convert.to_torch(model, draw(model, scale=0.05)))
    environment = {"JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled")}
    options = {"cwd": ROOT, "env": {**os.environ, **environment}, "text": True}

    def command(out):
        if not (tmp_path / out).exists():
            shutil.copytree(every_question, tmp_path / out / evaluate.QUESTIONS)
        program = [sys.executable, "-m", "experiments.mathematics.evaluate", f"--weights={tmp_path}/best.pt"]
        return [*program, f"--out={tmp_path / out}", "--questions=1", "--batch_size=1"]

    whole = subprocess.run(command("whole"), capture_output=True, timeout=900, check=True, **options)
    assert "inferred" in whole.stderr
    for answers in (20, 50):
        process = subprocess.Popen(command("killed"), stdout=subprocess.DEVNULL, **options)
        while len(list((tmp_path / "killed" / "answers").glob("*.jsonl"))) <= answers:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command("killed"), capture_output=True, timeout=900, check=True, **options)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
    lines = (tmp_path / "whole" / "scores.jsonl").read_text().splitlines()
    assert [(line["split"], line["module"]) for line in map(json.loads, lines)] == evaluation_set.keys()
    assert "| TP-Transformer (Schlag et al.) | 49.2M |" in (tmp_path / "whole" / "table.md").read_text()
