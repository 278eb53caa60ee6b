"""A data set prepared by TensorFlow Datasets, read without TensorFlow."""

import json
import pickle
import shutil
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from folnet.pretraining.sources import open_documents
from folnet.pretraining.tfds import TFDSDocuments

ARTICLES = [(f"Title {number}", f"Article {number} is ☃.\n\nIt has two paragraphs.") for number in range(30)]

with tfds.core.registered.skip_registration():

    class Wikipedia(tfds.core.GeneratorBasedBuilder):
        """The features of TFDS's `wikipedia`."""

        BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="20230601.en", version="1.0.0")]  # noqa: RUF012
        url_infos = {}  # noqa: RUF012 -- nothing is downloaded

        def _info(self):
            text = tfds.features.Text()
            features = tfds.features.FeaturesDict({"title": text, "text": text, "number": np.int64})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for number, (title, text) in enumerate(ARTICLES):
                yield number, {"title": title, "text": text, "number": number}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    root = tmp_path_factory.mktemp("tfds")
    Wikipedia(data_dir=root, config="20230601.en", file_format="array_record").download_and_prepare()
    return root / "wikipedia" / "20230601.en" / "1.0.0"


def test_articles(prepared):
    """All of them with their titles; another process can open them, and so can a part of a split."""
    documents = pickle.loads(pickle.dumps(open_documents(prepared)))
    assert isinstance(documents, TFDSDocuments)
    assert sorted(document.text for document in documents) == sorted(text for _, text in ARTICLES)
    for document in documents[:5]:
        number = document.text.split()[1]
        assert document.name.endswith(f"(Title {number})")
    part = TFDSDocuments(prepared, "train[:10]")
    assert [document.text for document in part] == [document.text for document in documents[:10]]
    assert "tensorflow" not in sys.modules


def test_what_it_does_not_have(prepared, tmp_path):
    """Unknown splits, features, formats and folders are named."""
    with pytest.raises(ValueError, match=r"split: got 'test', expected one of those of .*: train"):
        TFDSDocuments(prepared, "test")
    with pytest.raises(ValueError, match=r"feature: got 'body', expected one of those of .*title.*"):
        open_documents(prepared, feature="body")
    with pytest.raises(ValueError, match=r"train, record 0: got int for number, expected a text"):
        TFDSDocuments(prepared, feature="number")[0]
    with pytest.raises(ValueError, match=r"directory: got .* expected .* dataset_info\.json"):
        TFDSDocuments(tmp_path)
    for folder, there in ((prepared.parent, r"1\.0\.0"), (prepared.parents[1], r"20230601\.en/1\.0\.0")):
        with pytest.raises(ValueError, match=f"source: got .* which has {there}, expected one version"):
            open_documents(folder)
    copy = tmp_path / "wikipedia" / "20230601.en" / "1.0.0"
    shutil.copytree(prepared, copy)
    info = json.loads((copy / "dataset_info.json").read_text())
    (copy / "dataset_info.json").write_text(json.dumps({**info, "fileFormat": "tfrecord"}))
    with pytest.raises(ValueError, match="got the file format tfrecord, expected array_record"):
        open_documents(copy)
