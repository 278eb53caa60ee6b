"""A dataset prepared by TensorFlow Datasets, read without TensorFlow."""

import json
import pickle
import shutil
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tp_transformer.mathematics.batches import Batches
from tp_transformer.mathematics.questions import draw
from tp_transformer.mathematics.sources import Source, TFDSDirectory, copy_to_text
from tp_transformer.mathematics.tfds import TFDSQuestions
from tp_transformer.mathematics.vocabulary import DEFAULT

MODULE = "arithmetic__mul"
QUESTIONS = {"train": draw("train-easy", MODULE, 40, seed=0), "test": draw("interpolate", MODULE, 9, seed=0)}

with tfds.core.registered.skip_registration():

    class MathDataset(tfds.core.GeneratorBasedBuilder):
        """The features, names and splits of TFDS's own `math_dataset`, which requires TensorFlow."""

        BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=MODULE, version="1.0.0")]  # noqa: RUF012
        url_infos = {}  # noqa: RUF012 -- nothing is downloaded
        questions = QUESTIONS

        def _info(self):
            text = tfds.features.Text()
            features = tfds.features.FeaturesDict({"question": text, "answer": text})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(questions) for split, questions in self.questions.items()}

        def _generate_examples(self, questions):
            for index, (question, answer) in enumerate(questions):
                yield index, {"question": question, "answer": answer}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Prepares a dataset with TFDS itself, which shuffles the training split."""
    return _prepare(tmp_path_factory.mktemp("tfds"), QUESTIONS)


def _prepare(root, questions, file_format="array_record"):
    builder = MathDataset(data_dir=root, config=MODULE, file_format=file_format)
    builder.questions = questions
    builder.download_and_prepare()
    return root


def test_reads_what_tfds_prepared(prepared):
    """Reads all questions of both splits in TFDS's order, without TensorFlow."""
    for directory in (prepared, prepared / "math_dataset"):
        source = TFDSDirectory(directory)
        assert isinstance(source, Source)
        assert source.modules("train") == source.modules("interpolate") == (MODULE,)
        for split, name in (("train", "train"), ("interpolate", "test")):
            questions = source.questions(split, MODULE)
            assert sorted(questions) == sorted(QUESTIONS[name])
            assert questions[-1] == list(questions)[-1]
            assert questions.take([3, 0, 3]) == [questions[3], questions[0], questions[3]]
            expected = [(len(question), len(answer)) for question, answer in questions]
            np.testing.assert_array_equal(questions.lengths(), expected)
    assert "tensorflow" not in sys.modules


def test_copy_to_text(prepared, tmp_path):
    """Copies both splits to the published layout."""
    source = TFDSDirectory(prepared)
    copy = copy_to_text(source, tmp_path)
    for split in ("train", "interpolate"):
        assert list(copy.questions(split, MODULE)) == list(source.questions(split, MODULE))


def test_batches_of_it(prepared):
    """Batches work with this source as with any other."""
    batches = Batches(TFDSDirectory(prepared), "train", batch_size=8)
    texts = {DEFAULT.decode(row) for batch in pickle.loads(pickle.dumps(batches)) for row in batch.source}
    assert texts == {question for question, _ in QUESTIONS["train"]}


def test_what_it_does_not_have(prepared):
    """Levels, extrapolation and modules that were not prepared are rejected."""
    source = TFDSDirectory(prepared)
    for split in ("extrapolate", "train-easy"):
        with pytest.raises(
            ValueError, match=f"split: got '{split}', expected one of train, interpolate for a TFDS"
        ):
            source.modules(split)
    with pytest.raises(ValueError, match=r"^split: got 'validation', (?!.*TFDS)"):
        source.modules("validation")  # pyrefly: ignore
    with pytest.raises(
        ValueError, match="arithmetic__div: not prepared; available modules of train: arithmetic__mul"
    ):
        source.questions("train", "arithmetic__div")
    with pytest.raises(ValueError, match="a known name such as arithmetic__mul"):
        source.questions("train", "arithmetic_mul")
    with pytest.raises(
        ValueError, match=r"split: got 'validation', expected one of those of .*: (train, test|test, train)"
    ):
        TFDSQuestions(prepared / "math_dataset" / MODULE / "1.0.0", "validation")  # pyrefly: ignore


def test_the_newest_version_is_read(tmp_path):
    """By numbers, not by letters: 1.10.0 is newer than 1.9.0."""
    for version in ("1.10.0", "1.9.0", "other"):
        folder = tmp_path / "math_dataset" / MODULE / version
        folder.mkdir(parents=True)
        (folder / "dataset_info.json").touch()
    with pytest.raises(ValueError, match=rf"{MODULE}/1\.10\.0: damaged, or not prepared"):
        TFDSDirectory(tmp_path).questions("train", MODULE)


def test_a_folder_of_other_modules_has_none(tmp_path):
    folder = tmp_path / "math_dataset" / "algebra__other" / "1.0.0"
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").touch()
    with pytest.raises(ValueError, match=f"{MODULE}: not prepared; available modules of train: none"):
        TFDSDirectory(tmp_path).questions("train", MODULE)


def test_an_empty_folder(tmp_path):
    """A folder without prepared modules is rejected."""
    with pytest.raises(ValueError, match=r"expected math_dataset/<module>/<version>/dataset_info\.json"):
        TFDSDirectory(tmp_path)


def test_another_file_format(prepared, tmp_path):
    """Formats that require TensorFlow are rejected with an explanation."""
    source = prepared / "math_dataset" / MODULE / "1.0.0"
    target = tmp_path / "math_dataset" / MODULE / "1.0.0"
    target.mkdir(parents=True)
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    info = json.loads((target / "dataset_info.json").read_text())
    assert info["fileFormat"] == "array_record"
    info["fileFormat"] = "tfrecord"
    (target / "dataset_info.json").write_text(json.dumps(info))
    with pytest.raises(ValueError, match="got format tfrecord, expected array_record"):
        TFDSDirectory(tmp_path).questions("train", MODULE)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (("What is 2 \u00d7 2?", "4"), "record 0: UnicodeDecodeError"),
        (("WHAT IS B?", "4"), "record 0: got 'WHAT IS B.', '4', expected the dataset's characters"),
        (("a" * 161, "4"), "got 161 and 1 characters in question and answer, expected 1 to 160 and 30"),
    ],
)
def test_records_that_are_not_the_datasets(tmp_path, pair, message):
    """Invalid records raise when lengths are computed, as batches do, or when they are read."""
    source = TFDSDirectory(_prepare(tmp_path, {"train": [pair], "test": QUESTIONS["test"]}))
    questions = source.questions("train", MODULE)
    for read in (questions.lengths, lambda: questions[0]):
        with pytest.raises(ValueError, match=message):
            read()


@pytest.mark.parametrize(
    "name", ["dataset_info.json", "features.json", "math_dataset-test.array_record-00000-of-00001"]
)
def test_damage_is_reported_with_its_folder(prepared, tmp_path, name):
    """TensorFlow Datasets' own errors have other classes and do not name a file."""
    shutil.copytree(prepared, tmp_path / "copy")
    folder = tmp_path / "copy" / "math_dataset" / MODULE / "1.0.0"
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    message = r"1\.0\.0(: damaged, or not prepared by TensorFlow Datasets|, test, record 0): "
    with pytest.raises(ValueError, match=message):
        list(TFDSQuestions(folder, "test"))


def test_a_record_without_a_text_is_named(prepared):
    questions = TFDSQuestions(prepared / "math_dataset" / MODULE / "1.0.0", "test")
    with pytest.raises(ValueError, match=r"test, record 3: TypeError"):
        questions._decode(3, {"question": None, "answer": b"1"})


def test_records_have_lengths_of_the_datasets(prepared):
    questions = TFDSQuestions(prepared / "math_dataset" / MODULE / "1.0.0", "test")
    for sizes in ((160, 30), (1, 1)):
        question, answer = (b"1" * size for size in sizes)
        found = questions._decode(3, {"question": question, "answer": answer})
        assert found == (question.decode(), answer.decode())
    for sizes in ((161, 30), (160, 31), (0, 1), (1, 0)):
        question, answer = (b"1" * size for size in sizes)
        message = f"record 3: got {sizes[0]} and {sizes[1]} characters in question and answer"
        with pytest.raises(ValueError, match=message):
            questions._decode(3, {"question": question, "answer": answer})
