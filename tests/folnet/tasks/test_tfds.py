"""Prepared copies: location, version and errors. The tests of tasks read complete ones."""

import re

import numpy as np
import pytest
import tensorflow_datasets as tfds

from folnet.tasks import tfds as task_tfds

with tfds.core.registered.skip_registration():

    class Things(tfds.core.GeneratorBasedBuilder):
        """Features of every kind, with a text that is not UTF-8 in one split."""

        VERSION = tfds.core.Version("1.0.0")
        url_infos = {}  # noqa: RUF012 -- nothing is downloaded

        def _info(self):
            text = tfds.features.Text()
            features = {
                "text": text,
                "texts": tfds.features.Sequence(text),
                "number": np.float32,
                "inside": {"flag": np.bool_, "many": tfds.features.Sequence(np.int32)},
            }
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples("é"), "test": self._generate_examples(b"\xff")}

        def _generate_examples(self, text):
            inside = {"flag": True, "many": [1, 2]}
            yield 0, {"text": text, "texts": [text, "b"], "number": 0.5, "inside": inside}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("tfds")
    Things(data_dir=root, file_format="array_record").download_and_prepare()
    return root / "things" / "1.0.0"


def test_records(folder):
    """Values become Python's types, also when nested."""
    ((where, record),) = task_tfds.records(folder, "train")
    assert where == f"{folder}, train, record 0"
    assert record == {
        "text": "é",
        "texts": ["é", "b"],
        "number": 0.5,
        "inside": {"flag": True, "many": [1, 2]},
    }
    assert type(record["inside"]["flag"]) is bool
    assert {type(number) for number in (record["number"], *record["inside"]["many"])} == {float, int}


def test_what_cannot_be_read(folder):
    """The error names the record or the split."""
    with pytest.raises(ValueError, match=r"test, record 0: text: not UTF-8"):
        list(task_tfds.records(folder, "test"))
    have = re.escape(str(folder)) + r": (train, test|test, train)"
    with pytest.raises(ValueError, match=f"split: got 'validation', expected one of those of {have}"):
        list(task_tfds.records(folder, "validation"))


def test_the_newest_version_is_taken(tmp_path):
    """Versions compare as numbers, in TFDS's folder or the data set's; unfinished ones are ignored."""
    for version, done in (("2.9.0", True), ("2.10.0", True), ("2.10.x", True), ("3.0.0", False)):
        path = tmp_path / "glue" / "rte" / version
        path.mkdir(parents=True)
        if done:
            (path / "dataset_info.json").touch()
    assert task_tfds.prepared(tmp_path, "glue/rte") == tmp_path / "glue" / "rte" / "2.10.0"
    assert task_tfds.prepared(tmp_path / "glue", "glue/rte") == tmp_path / "glue" / "rte" / "2.10.0"
    assert task_tfds.prepared(tmp_path, "glue/cola") is None
    assert task_tfds.command("glue/rte") == "tfds build glue/rte --file_format=array_record"
