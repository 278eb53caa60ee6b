"""Text files of questions: random access, checks with line numbers."""

import pickle
import re
import stat

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tp_transformer.mathematics.questions import Question
from tp_transformer.mathematics.text import TextQuestions, write_questions
from tp_transformer.mathematics.vocabulary import CHARACTERS

PAIRS = st.builds(
    Question,
    st.text(alphabet=CHARACTERS, min_size=1, max_size=160),
    st.text(alphabet=CHARACTERS, min_size=1, max_size=30),
)


@hypothesis.given(st.lists(PAIRS, min_size=1, max_size=300), st.data())
@hypothesis.settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow],
)
def test_reads_what_was_written(tmp_path, pairs, data):
    """Random access, iteration and lengths agree; the file has the published format."""
    path = tmp_path / "module.txt"
    write_questions(path, pairs)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.read_text(encoding="ascii") == "".join(f"{q}\n{a}\n" for q, a in pairs)
    questions = TextQuestions(path)
    assert len(questions) == len(pairs)
    assert list(questions) == pairs
    index = data.draw(st.integers(-len(pairs), len(pairs) - 1))
    assert questions[index] == pairs[index]
    np.testing.assert_array_equal(questions.lengths(), [(len(q), len(a)) for q, a in pairs])


@pytest.mark.parametrize("count", [64, 65])
def test_every_question_is_found(tmp_path, count):
    """Also the first of the next 64, which begin at a stored position; of the greatest and least lengths."""
    pairs = [Question("q" * size, "a" * min(size, 30)) for size in [160, 1] * 32 + [160]][-count:]
    write_questions(tmp_path / "m.txt", pairs)
    questions = TextQuestions(tmp_path / "m.txt")
    assert [questions[index] for index in range(count)] == pairs
    assert questions[-1] == pairs[-1]


def test_indices(tmp_path):
    """Accepts NumPy integers and rejects indices out of range."""
    write_questions(tmp_path / "m.txt", [Question("a?", "1"), Question("b?", "2")])
    questions = TextQuestions(tmp_path / "m.txt")
    assert questions[np.int64(1)] == ("b?", "2")
    for index in (2, -3):
        with pytest.raises(IndexError, match=f"index: got {index}, expected one of 2 questions"):
            questions[index]


def test_travels_to_another_process(tmp_path):
    """The unpickled copy maps the file again and detects a change of size."""
    path = tmp_path / "m.txt"
    write_questions(path, [Question(f"{i}?", str(i)) for i in range(200)])
    questions = TextQuestions(path)
    sent = pickle.dumps(questions)
    assert len(sent) < 1500  # lengths and places, not the text
    copy = pickle.loads(sent)
    assert list(copy) == list(questions)
    assert copy.take(range(199, -1, -1)) == [(f"{i}?", str(i)) for i in range(199, -1, -1)]
    path.write_text("1?\n1\n", encoding="ascii")
    with pytest.raises(ValueError, match=r"got 5 bytes, expected"):
        pickle.loads(sent)


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    """A failed write leaves the old file and no temporary file."""
    path = tmp_path / "m.txt"
    write_questions(path, [Question("a?", "1")])

    def failing():
        yield Question("b?", "2")
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        write_questions(path, failing())
    with pytest.raises(UnicodeEncodeError):
        write_questions(path, [Question("\u00e9", "2")])
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.txt"]
    assert list(TextQuestions(path)) == [("a?", "1")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "line 1: got an empty file"),
        (b"a?\n1\nb?\n", r"line 3: got a question without an answer \(3 lines\), expected an even number"),
        (b"a?\n1\nb?\n2", "line 4: got no line end, expected one; the file may be truncated"),
        (b"a?\n1\nB?\n2\n", "line 3: got 'B', expected the dataset's characters"),
        (b"a?\r\n1\r\n", "line 1: got a carriage return"),
        (b"a?\n\xff\n", r"line 2: got '\\xff', expected"),
        (b"a?\n1\n\xc3\xa9?\n2\n", r"line 3: got '\\xc3', expected"),
        (b"a?\n1\n\n2\n", "line 3: got 0 characters in the question, expected 1 to 160"),
        (b"a?\n1\nb?\n\n", "line 4: got 0 characters in the answer, expected 1 to 30"),
        (b"a?\n1\n" + b"b" * 161 + b"\n2\n", "line 3: got 161 characters in the question"),
        (b"a?\n1\nb?\n" + b"2" * 31 + b"\n", "line 4: got 31 characters in the answer"),
        (b"a?\n1\n" + b"b" * 400 + b"\n2\n", "line 3: got 400 characters in the question"),
    ],
)
def test_damage_is_reported_with_file_and_line(tmp_path, text, message):
    """Damage is found when the file is opened."""
    path = tmp_path / "module.txt"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=re.escape(f"{path}, ") + message):
        TextQuestions(path)


def test_a_missing_file(tmp_path):
    """Python's own error is raised."""
    with pytest.raises(FileNotFoundError, match=r"none\.txt"):
        TextQuestions(tmp_path / "none.txt")
