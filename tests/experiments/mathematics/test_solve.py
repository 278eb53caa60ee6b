"""Asking a trained model: the program as a user starts it, and what it shows."""

import dataclasses
import io
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from experiments import runtime
from experiments.mathematics import figures, solve, train
from experiments.mathematics.load import load
from tests.experiments.mathematics.small import talkative, with_data
from tp_transformer import TPTransformer, mathematics, roles

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ROOT = Path(__file__).resolve().parents[3]
QUESTION = "Is 6 a factor of 12?"


@pytest.fixture
def run(mathematics_run):
    """The workdir of a finished run."""
    return mathematics_run[1]


def start(*flags, typed=""):
    return subprocess.run(
        [sys.executable, "-m", "experiments.mathematics.solve", *flags],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        input=typed,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.slow
def test_typed_questions_are_answered_until_the_input_ends(run, tmp_path):
    picture = tmp_path / "roles.png"
    lines = f"{QUESTION}\nWhat is \N{GREEK SMALL LETTER PI}?\nWhat is the tens digit of 3456?\n"
    ended = start(f"--run={run}", "--beams=3", f"--picture={picture}", typed=lines)
    assert ended.returncode == 0, ended.stderr
    printed = ended.stdout.splitlines()
    assert printed[0] == f"#{QUESTION}%"
    assert re.fullmatch(r"[0-2]{22}", printed[1])  # three clusters
    assert printed[2].startswith("= ")
    assert all(re.fullmatch(r" +\d+\.\d\d%  .*", line) for line in printed[3:6])
    assert printed[6] == "#What is the tens digit of 3456?%"
    assert "error: " in ended.stderr  # for the second question; the third is still answered
    assert "Traceback" not in ended.stderr
    assert picture.is_file()


@pytest.mark.slow
def test_mistakes_are_reported_without_a_traceback(run, tmp_path):
    mistakes = {
        (f"--run={tmp_path}", f"--question={QUESTION}"): "not a run of experiments.mathematics",
        (f"--run={run}", "--question=What is \N{MINUS SIGN}1?"): "\N{MINUS SIGN}",
        (
            f"--run={run}",
            f"--question={QUESTION}",
            "--module=numbers__gcd",
        ): "--module: got 'numbers__gcd', expected",
    }
    for flags, message in mistakes.items():
        ended = start(*flags)
        assert ended.returncode != 0
        assert message in ended.stdout + ended.stderr
        assert "Traceback" not in ended.stdout + ended.stderr


def clusters_of(trained, asked=(), *, module=None, head=None, k=None):
    return solve.find_clusters(trained, asked, module=module, head=head, k=k)


def test_roles_are_those_of_the_runs_test_questions(run):
    """Clusters of the same questions read from the source; a question asked falls into them."""
    trained = load(run)
    clusters = clusters_of(trained)
    assert clusters is not None
    assert isinstance(trained.model, TPTransformer)
    asked = solve.test_questions(trained, None)
    assert trained.config is not None
    source = train.open_questions(trained.config, run)
    questions = [pair.question for pair in source.questions("interpolate", "numbers__place_value")]
    assert asked == [questions[index * 12 // 8] for index in range(8)]
    solver = solve.Solver(trained, clusters)
    expected = roles.assign(clusters, trained.model, trained.params, trained.encode([QUESTION]))
    np.testing.assert_array_equal(solver.labels(QUESTION), expected[0, : len(QUESTION) + 2])
    again = solver.labels(asked[0])
    np.testing.assert_array_equal(again, clusters.labels[0, : len(asked[0]) + 2])


def test_a_folder_may_lack_test_questions(tmp_path):
    questions = [mathematics.Question("1 + 1", "2")]
    (tmp_path / "train").mkdir()
    mathematics.write_questions(tmp_path / "train" / "numbers__gcd.txt", questions)
    config = with_data(directory=str(tmp_path), modules=())
    trained = dataclasses.replace(talkative(mathematics.DEFAULT), config=config)
    assert solve.test_questions(trained, None) == []


def test_colours_are_those_of_the_picture(run):
    trained = load(run)
    solver = solve.Solver(trained, clusters_of(trained), colour=True)
    shown, signs = solver.roles(QUESTION)
    found = re.findall(r"\x1b\[30;48;2;(\d+);(\d+);(\d+)m(.)", shown)
    assert "".join(character for *_, character in found) == f"#{QUESTION}%"
    palette = figures.palette(3)
    for (*colour, _), sign in zip(found, signs, strict=True):
        assert [int(part) for part in colour] == [round(255 * part) for part in palette[int(sign)]]
    assert shown.endswith("\x1b[0m")


def test_without_test_questions_those_asked_are_clustered(run):
    trained = load(run)
    moved = type(trained)(trained.model, trained.params)
    assert clusters_of(moved) is None
    assert clusters_of(moved, ["1 + 1"]) is None  # 7 role vectors for 20 clusters
    found = clusters_of(moved, [QUESTION], k=2)
    assert found is not None
    assert len(found.centroids) == 2
    solver = solve.Solver(moved, None, beams=2)
    lines = solver.solve(QUESTION).splitlines()
    assert lines[:2] == [QUESTION, f"= {moved.answer([QUESTION])[0]}"]
    beam = moved.beam(QUESTION, 2)
    assert lines[2:] == [f"   {probability:7.2%}  {text}" for text, probability in beam]
    with pytest.raises(ValueError, match="clusters: got None"):
        solver.labels(QUESTION)


def test_what_cannot_be_clustered_is_reported(run):
    trained = load(run)
    with pytest.raises(ValueError, match="--module: got 'numbers__gcd', expected one of 'numbers__place"):
        clusters_of(trained, module="numbers__gcd")
    for head in (-1, 2):
        with pytest.raises(ValueError, match=f"head: got {head}, expected 0 to 1"):
            clusters_of(trained, head=head)
    with pytest.raises(ValueError, match="k: got 9999"):
        clusters_of(trained, k=9999)
    with pytest.raises(ValueError, match="clusters: got None"):
        solve.Solver(trained, None).picture([QUESTION])


def test_a_picture_that_cannot_be_drawn_is_refused_before_answering(run, tmp_path, monkeypatch, capsys):
    """The message names the flags that help."""
    trained = load(run)
    moved = type(trained)(trained.model, trained.params)
    plain = talkative(mathematics.DEFAULT, name="transformer")
    flags = {"run": "", "step": None, "question": [QUESTION], "beams": 2, "module": None, "head": None}
    flags |= {"clusters": None, "colour": "never", "picture": "roles.png"}
    monkeypatch.setattr(solve.flags, "FLAGS", types.SimpleNamespace(**flags))
    for found, message in (
        (moved, "--picture: got 'roles.png' .* --clusters .* --question"),
        (plain, "--picture: got 'roles.png', expected none with a Transformer"),
    ):
        monkeypatch.setattr(solve, "load", lambda *_, found=found, **__: found)
        solve.flags.FLAGS.question = ["1"]
        with pytest.raises(ValueError, match=message):
            solve.main()
    assert capsys.readouterr().out == ""


def test_a_transformer_has_no_roles(monkeypatch):
    trained = talkative(mathematics.DEFAULT, name="transformer")
    assert not isinstance(trained.model, TPTransformer)
    assert clusters_of(trained, [QUESTION]) is None
    monkeypatch.setattr(type(trained), "answer", lambda self, questions: ["True"])
    monkeypatch.setattr(type(trained), "beam", lambda self, question, beams: [("False", 0.5)] * beams)
    shown = solve.Solver(trained, None, beams=1).solve(QUESTION)
    assert shown == f"{QUESTION}\n= True\n    50.00%  False"


def test_the_program_answers_what_is_typed_and_reports_what_it_cannot(run, tmp_path, monkeypatch, capsys):
    """As the slow tests of the command line, without another process."""
    flags = {"run": str(run), "step": None, "question": [], "beams": 2, "module": "numbers__is_factor"}
    flags |= {"head": 1, "clusters": 2, "colour": "never", "picture": str(tmp_path / "roles.png")}
    monkeypatch.setattr(solve.flags, "FLAGS", types.SimpleNamespace(**flags))
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{QUESTION}\n1\N{MINUS SIGN}1\n{QUESTION[3:]}\n"))
    solve.main()
    output, errors = capsys.readouterr()
    printed = output.splitlines()
    assert [printed[0], printed[5], printed[10]] == [f"#{QUESTION}%", f"#{QUESTION[3:]}%", flags["picture"]]
    assert (tmp_path / "roles.png").is_file()
    assert errors.startswith("error: ")
    assert len(errors.splitlines()) == 1
    trained = load(run)
    clusters = clusters_of(trained, module="numbers__is_factor", head=1, k=2)
    assert clusters is not None
    assert isinstance(trained.model, TPTransformer)
    labels = roles.assign(clusters, trained.model, trained.params, trained.encode([QUESTION]))
    assert printed[1] == "".join(map(str, labels[0, : len(QUESTION) + 2]))
    assert clusters.head == 1
    (answer,) = trained.answer([QUESTION])
    assert printed[2] == f"= {answer}"
    for name, value in {"colour": "always", "picture": None, "question": [QUESTION]}.items():
        monkeypatch.setattr(solve.flags.FLAGS, name, value)
    solve.main()
    assert capsys.readouterr().out.startswith("\x1b[30;48;2;")
    monkeypatch.setattr(solve.flags.FLAGS, "question", ["1\N{MINUS SIGN}1"])
    with pytest.raises(ValueError, match="\N{MINUS SIGN}"):
        solve.main()
    monkeypatch.setattr(solve.flags.FLAGS, "step", 3)
    with pytest.raises(runtime.CheckpointError, match="checkpoints/3: no such checkpoint"):
        solve.main()


def test_more_clusters_than_signs_are_shown_by_a_plus(run, monkeypatch):
    trained = load(run)
    solver = solve.Solver(trained, clusters_of(trained))
    shown = solver.roles(QUESTION)[1]
    assert solver.roles(QUESTION)[0] == f"#{QUESTION}%"  # without colour
    assert len(set(solve.DIGITS)) == 62
    monkeypatch.setattr(solve, "DIGITS", "01")
    assert solver.roles(QUESTION)[1] == shown.replace("2", "+")
    many = clusters_of(trained, k=62)
    assert many is not None
    assert many.centroids.shape[0] == 62


def test_typing_ends_with_an_empty_line_and_asks_at_a_terminal(capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    assert list(solve.typed(io.StringIO("a\n b \n\nc\n"))) == ["a", "b"]
    assert capsys.readouterr().out == ""
    assert list(solve.typed(Terminal("a\n"))) == ["a"]
    assert capsys.readouterr().out == 2 * solve.PROMPT


@pytest.mark.parametrize(("choice", "coloured"), [("auto", False), ("always", True), ("never", False)])
def test_colour_is_for_terminals_unless_it_is_asked_for(choice, coloured):
    assert solve.colourful(choice, io.StringIO()) is coloured
