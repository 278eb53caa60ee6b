"""Documents from a data set prepared by TensorFlow Datasets, such as `wikipedia`, read without TensorFlow."""

import os
from pathlib import Path

from folnet.prepared import open_split, reading
from folnet.pretraining.documents import Document, Documents


class TFDSDocuments(Documents):
    """One split of a prepared data set with a text in each example.

    Prepare it once, where TensorFlow is installed: `tfds build wikipedia/20230601.en
    --file_format=array_record`.
    """

    def __init__(self, directory: str | os.PathLike[str], split: str = "train", feature: str = "text"):
        """Opens a split, such as "train" or "train[:1000]", of the version in a folder.

        The folder contains `dataset_info.json`.

        `feature` names the text; a feature `title`, if present, names the document in errors.

        Raises:
            ValueError: If the data set is damaged, is not in the array_record format, or lacks the split or
                the feature.
        """
        self._directory, self._feature = Path(directory).expanduser(), feature
        self.name = f"{self._directory}, {split}"
        if not (self._directory / "dataset_info.json").is_file():
            raise ValueError(
                f"directory: got {self._directory}, expected a prepared data set with dataset_info.json"
            )
        self._records, features = open_split(self._directory, split)
        if feature not in features:
            have = ", ".join(features) or "none"
            raise ValueError(f"feature: got {feature!r}, expected one of those of {self._directory}: {have}")

    def __len__(self) -> int:
        return len(self._records)

    def _at(self, index: int) -> Document:
        where = f"{self.name}, record {index}"
        with reading(self._directory):
            record = self._records[index]
        data = record[self._feature]
        if not isinstance(data, bytes):
            raise ValueError(f"{where}: got {type(data).__name__} for {self._feature}, expected a text")
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{where}: {self._feature}: not UTF-8 ({error})") from error
        title = record.get("title", b"")
        if isinstance(title, bytes) and title:
            where += f" ({title.decode('utf-8', 'replace')})"
        return Document(where, text.replace("\r\n", "\n"))
