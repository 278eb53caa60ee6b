"""Three sources with one interface: the generator, text files, TFDS."""

import collections
import random

import numpy as np
import pytest

from tp_transformer.mathematics import questions as mathematics_questions
from tp_transformer.mathematics.modules import EXTRAPOLATION_MODULES, LEVELS, MODULES
from tp_transformer.mathematics.questions import Question, Questions, draw
from tp_transformer.mathematics.sources import (
    Generator,
    Joined,
    Listed,
    Source,
    TextDirectory,
    TFDSDirectory,
    copy_to_text,
    open_source,
)
from tp_transformer.mathematics.text import write_questions

SOME = ("numbers__place_value", "arithmetic__add_or_sub")
SET = Generator(train=30, test=5, names=SOME, extrapolation=("numbers__place_value_big",), seed=1)


def _write(root, split, module, count=3):
    (root / split).mkdir(parents=True, exist_ok=True)
    pairs = [Question(f"{split} {i}?", str(i)) for i in range(count)]
    write_questions(root / split / f"{module}.txt", pairs)
    return pairs


def test_joined():
    """Parts are concatenated in order."""
    parts = [Listed([Question("a", "1")]), Listed([]), Listed([Question("bb", "22"), Question("c", "3")])]
    joined = Joined(parts)
    assert list(joined) == [("a", "1"), ("bb", "22"), ("c", "3")]
    assert joined[-1] == joined[2] == ("c", "3")
    assert joined.take([2, 0, 1, 2]) == [("c", "3"), ("a", "1"), ("bb", "22"), ("c", "3")]
    np.testing.assert_array_equal(joined.lengths(), [[1, 1], [2, 2], [1, 1]])
    with pytest.raises(IndexError, match="index: got 3, expected one of 3 questions"):
        joined[3]


class TestGenerator:
    """The generator as a source."""

    def test_is_a_source(self):
        """Lists the requested modules in the dataset's order."""
        assert isinstance(SET, Source)
        assert SET.modules("train") == SET.modules("interpolate") == SOME[::-1]
        assert SET.modules("extrapolate") == ("numbers__place_value_big",)
        assert isinstance(SET.questions("train", SOME[0]), Questions)
        assert len(SET.questions("train", SOME[0])) == 30
        assert [len(SET.questions(level, SOME[0])) for level in LEVELS] == [10] * 3
        assert len(SET.questions("extrapolate", "numbers__place_value_big")) == 5

    def test_train_is_the_three_levels(self):
        """The split "train" concatenates the levels in order."""
        levels = [question for level in LEVELS for question in SET.questions(level, SOME[1])]
        assert list(SET.questions("train", SOME[1])) == levels

    def test_questions_are_those_drawn(self):
        """A test split equals the result of `draw`; equal sets are equal."""
        assert list(SET.questions("interpolate", SOME[0])) == draw("interpolate", SOME[0], 5, seed=1)
        assert Generator(30, 5, list(SOME[::-1]), ("numbers__place_value_big",), 1) == SET

    def test_no_training_question_is_a_test_question(self, monkeypatch):
        """Most modules rarely repeat a question; this one, of a thousand questions, often does."""
        problem = collections.namedtuple("problem", "question answer")

        def sample():
            number = random.randrange(1000)
            return problem(f"What is {number}?", str(number))

        monkeypatch.setattr(mathematics_questions, "_samplers", lambda split: dict.fromkeys(SOME, sample))
        drawn = Generator(train=300, test=200, names=SOME, extrapolation=(), seed=987)
        test = {question for name in SOME for question, _ in drawn.questions("interpolate", name)}
        train = [question for name in SOME for question, _ in drawn.questions("train", name)]
        assert len(train) == 600
        assert not test & set(train)
        unfiltered = {question for question, _ in draw("train-easy", SOME[0], 100, seed=987)}
        assert test & unfiltered  # some questions had to be excluded, also from the other module's test

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"train": 31}, r"train: got .*, expected a nonnegative multiple of 3"),
            ({"train": -3}, r"train: got .*, expected a nonnegative multiple of 3"),
            ({"test": -1}, "test: got -1, expected at least 0"),
            ({"train": 0, "test": 0}, "train, test: got 0 for both"),
            ({"seed": -1}, "seed: got -1, expected at least 0"),
            ({"names": ("numbers__placevalue",)}, "a known name such as numbers__place_value"),
            ({"extrapolation": ("numbers__gcd",)}, "modules of extrapolate: got 'numbers__gcd', expected"),
            ({"names": (), "extrapolation": ()}, "at least one module"),
        ],
    )
    def test_refusals(self, arguments, message):
        """Arguments are checked before anything is drawn."""
        with pytest.raises(ValueError, match=message):
            Generator(**arguments)

    def test_a_module_that_was_not_asked_for(self):
        """Modules outside the set are rejected."""
        with pytest.raises(ValueError, match="of interpolate: got 'numbers__gcd', expected"):
            SET.questions("interpolate", "numbers__gcd")

    def test_everything_by_default(self):
        """All 56 and 15 modules."""
        assert Generator().modules("train-easy") == MODULES
        assert Generator().modules("extrapolate") == EXTRAPOLATION_MODULES
        assert (Generator().train, Generator().test, Generator().seed) == (3000, 100, 0)


class TestTextDirectory:
    """Text files in the published layout."""

    def test_reads_the_published_layout(self, tmp_path):
        """Also from the enclosing folder."""
        root = tmp_path / "mathematics_dataset-v1.0"
        written = {level: _write(root, level, "numbers__gcd") for level in LEVELS}
        test = _write(root, "interpolate", "numbers__gcd", 2)
        for directory in (root, tmp_path, str(tmp_path)):
            source = TextDirectory(directory)
            assert isinstance(source, Source)
            assert source.modules("train") == source.modules("interpolate") == ("numbers__gcd",)
            assert list(source.questions("train-hard", "numbers__gcd")) == written["train-hard"]
            assert list(source.questions("train", "numbers__gcd")) == [
                pair for level in LEVELS for pair in written[level]
            ]
            assert list(source.questions("interpolate", "numbers__gcd")) == test
            assert source.modules("extrapolate") == ()

    def test_a_module_without_a_level_is_not_in_train(self, tmp_path):
        """The split "train" needs all three levels."""
        _write(tmp_path, "train-easy", "numbers__gcd")
        source = TextDirectory(tmp_path)
        assert source.modules("train-easy") == ("numbers__gcd",)
        assert source.modules("train") == ()
        with pytest.raises(ValueError, match=r"train-medium/numbers__gcd\.txt: no such file"):
            source.questions("train", "numbers__gcd")

    def test_refusals(self, tmp_path):
        """Errors state what is missing and what is available."""
        with pytest.raises(
            ValueError, match=r"directory: got .*, expected at least one of the folders train-easy, "
        ):
            TextDirectory(tmp_path)
        _write(tmp_path, "interpolate", "numbers__gcd")
        source = TextDirectory(tmp_path)
        with pytest.raises(ValueError, match="available modules of interpolate: numbers__gcd"):
            source.questions("interpolate", "numbers__lcm")
        with pytest.raises(ValueError, match="a known name such as numbers__lcm"):
            source.questions("interpolate", "numbers_lcm")
        (tmp_path / "generation.json").write_text("{}", encoding="utf-8")
        with pytest.raises(ValueError, match="generation is not finished, start it again"):
            source.questions("interpolate", "numbers__lcm")


def test_one_file_instead_of_three_levels(tmp_path):
    """The layout that the generator writes with --train_split=False."""
    written = _write(tmp_path, "train", "numbers__gcd")
    source = open_source(tmp_path)
    assert source.modules("train") == ("numbers__gcd",)
    assert source.modules("train-easy") == ()
    assert list(source.questions("train", "numbers__gcd")) == written


def test_copy_to_text(tmp_path):
    """The copy has the same questions in the same order; existing files are not rewritten."""
    splits = ("train", "train-hard", "extrapolate")
    copy = copy_to_text(SET, tmp_path, splits=splits)
    for split in splits:
        assert copy.modules(split) == SET.modules(split)
        for module in SET.modules(split):
            assert list(copy.questions(split, module)) == list(SET.questions(split, module))
    path = tmp_path / "train" / f"{SOME[0]}.txt"
    path.write_text("kept?\n1\n", encoding="ascii")
    copy_to_text(SET, tmp_path, splits=splits)
    assert list(copy.questions("train", SOME[0])) == [("kept?", "1")]


@pytest.mark.parametrize("split", ["train", "interpolate", "extrapolate"])
def test_what_there_is_is_copied(split, tmp_path):
    """Every split of a set that has it, and nothing in place of those that it has not."""
    _write(tmp_path / "set", split, "measurement__conversion")
    copy = copy_to_text(TextDirectory(tmp_path / "set"), tmp_path / "copy")
    assert [path.name for path in copy.directory.iterdir()] == [split]
    assert copy.modules(split) == ("measurement__conversion",)


def test_open_source(tmp_path):
    """The kind of source is detected from the folder's content."""
    with pytest.raises(
        ValueError, match=r"folders train-easy, .*; or directory: got .*, expected math_dataset/"
    ):
        open_source(tmp_path)
    (tmp_path / "tfds" / "math_dataset" / "numbers__gcd" / "1.0.0").mkdir(parents=True)
    (tmp_path / "tfds" / "math_dataset" / "numbers__gcd" / "1.0.0" / "dataset_info.json").touch()
    assert isinstance(open_source(tmp_path / "tfds"), TFDSDirectory)
    _write(tmp_path / "text", "interpolate", "numbers__gcd")
    assert isinstance(open_source(tmp_path / "text"), TextDirectory)
