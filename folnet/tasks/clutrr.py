"""CLUTRR (Sinha et al. 2019): how two people in a family are related, from a story (Appendix C, Figure 5).

Models are trained on chains of 2 and 3 relations, or of 2, 3 and 4, and tested on 2 to 10. Story and question
are a pair of sequences, and names are ordinary words.

The data is published in two forms. The authors' has `1.2,1.3_train.csv` and `1.2_test.csv` to
`1.10_test.csv`, without a validation split. Hugging Face's copy has `train.csv`, `validation.csv` and
`test.csv`; its `target` is a number, and its training and validation rows are the authors' training rows. The
license is CC BY-NC.

Neither has a question in words (the column `text_query` is empty), and the paper does not say which it used.
The program released with the paper uses both columns unchanged, with brackets around the story's names and a
query such as ('Jason', 'Lewis'); `released` does the same. Otherwise brackets are removed and our own
`question` is asked.
"""

import ast
import csv
import dataclasses
import io
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from folnet.tasks.files import damaged, text_of
from folnet.tasks.interface import Example, Examples, SequenceTask

RELATIONS = (
    "aunt",
    "son-in-law",
    "grandfather",
    "brother",
    "sister",
    "father",
    "mother",
    "grandmother",
    "uncle",
    "daughter-in-law",
    "grandson",
    "granddaughter",
    "father-in-law",
    "mother-in-law",
    "nephew",
    "son",
    "daughter",
    "niece",
    "husband",
    "wife",
    "sister-in-law",
)
"""Relations, in the order of their numbers in Hugging Face's copy."""

TEST_LENGTHS = range(2, 11)
"""Numbers of relations in test chains."""

_TASK = re.compile(r"task_\d+\.(\d+)")
BRACKETS = re.compile(r"\[([^\[\]]*)\]")
"""A name in a story."""

_COPY = "https://raw.githubusercontent.com/kliang5/CLUTRR_huggingface_dataset/main"
_ORIGINAL = "https://drive.google.com/file/d/1SEq_e1IVCDDzsBIBhoUQ5pOVH5kxRoZF/view"


class Row(NamedTuple):
    """A row of a file.

    Attributes:
        path: the file.
        line: the row's first line.
        fields: the row by the names of the columns.
        relation: the answer, one of `RELATIONS`.
        length: number of relations in the chain, k.
    """

    path: Path
    line: int
    fields: Mapping[str, str]
    relation: str
    length: int

    def damaged(self, problem: str) -> ValueError:
        """Returns the error for a row that cannot be read."""
        return damaged(self.path, self.line, problem)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClutrrTask(SequenceTask):
    """One of the two settings in Figure 5."""

    lengths: tuple[int, ...]
    """Numbers of relations in the training chains."""
    folder: str
    """Folder of Hugging Face's copy."""
    original: str
    """Folder in the authors' archive."""
    question: str = "How is {second} related to {first}?"
    """The second sequence. The answer for (Jason, Lewis) is grandson if Lewis is Jason's grandson."""
    released: bool = False
    """Whether to use story and query exactly as in the file."""

    def find(self, directory: Path, split: str) -> tuple[Path, ...] | None:
        """Returns the files of a split: one, or nine for the authors' test split."""
        for folder in (directory / self.folder, directory / self.original, directory):
            if (path := folder / f"{split}.csv").is_file():
                return (path,)
            paths = tuple(folder / name for name in self._originals(split))
            if paths and all(path.is_file() for path in paths):
                return paths
        return None

    def _originals(self, split: str) -> list[str]:
        """Returns the authors' names for a split's files."""
        match split:
            case "train":
                return [",".join(f"1.{length}" for length in self.lengths) + "_train.csv"]
            case "test":
                return [f"1.{length}_test.csv" for length in TEST_LENGTHS]
        return []

    def looked_for(self, split: str) -> str:
        """Returns the names of the split's files in both forms."""
        names = [f"{self.folder}/{split}.csv"]
        if originals := self._originals(split):
            names.append(f"{self.original}/{originals[0]}" + (" ..." if len(originals) > 1 else ""))
        return " or ".join(names)

    def examples(self, directory: str | os.PathLike[str], split: str) -> Examples:
        """Reads a split; see `SequenceTask`. An example's group is "k=..", the number of relations."""
        rows = self.rows(directory, split, "story", "query")
        # Each of the authors' files numbers its rows from 0.
        return Examples([self._example(row)._replace(index=str(place)) for place, row in enumerate(rows)])

    def rows(self, directory: str | os.PathLike[str], split: str, *columns: str) -> list[Row]:
        """Returns the rows of a split, in the order of the files.

        Raises:
            ValueError: files are missing or damaged, or one has no such column; the message names it.
        """
        paths = self.place(directory, split)
        rows = [row for path in paths for row in self._rows(path, split, columns)]
        if not rows:
            raise damaged(paths[0], 1, "got no rows, expected at least one")
        return rows

    def _rows(self, path: Path, split: str, columns: tuple[str, ...]) -> Iterator[Row]:
        # These files use quotes, and a quoted story may contain a line break.
        reader = csv.DictReader(io.StringIO(text_of(path), newline=""), strict=True)
        header = reader.fieldnames or ()
        answer = "target_text" if "target_text" in header else "target"
        if missing := [name for name in (*columns, answer, "task_name") if name not in header]:
            raise damaged(path, 1, f"got the header {list(header)}, expected one with {', '.join(missing)}")
        line = 1
        try:
            while True:
                # A row may span several lines; errors name its first line.
                line = reader.line_num + 1
                if (fields := next(reader, None)) is None:
                    return
                if None in fields or None in fields.values():
                    raise damaged(path, line, f"got another number of columns, expected {len(header)}")
                row = Row(path, line, fields, fields[answer], _length(path, line, fields["task_name"]))
                self._check(row, split)
                yield row
        except csv.Error as error:
            raise damaged(path, line, f"not CSV ({error})") from error

    def _check(self, row: Row, split: str) -> None:
        lengths = TEST_LENGTHS if split == "test" else self.lengths
        if row.relation not in RELATIONS:
            raise row.damaged(f"got the relation {row.relation!r}, expected one of {', '.join(RELATIONS)}")
        if row.length not in lengths:
            wanted = ", ".join(map(str, lengths))
            raise row.damaged(f"got a chain of {row.length} relations, expected {wanted} for {self.name}")

    def _example(self, row: Row) -> Example:
        story, query = row.fields["story"], row.fields["query"]
        if (names := _names(query)) is None:
            raise row.damaged(f"got the query {query!r}, expected ('name', 'name')")
        if self.released:
            story, question = story.strip(), query.strip()
        else:
            story = BRACKETS.sub(r"\1", story).strip()
            question = self.question.format(first=names[0], second=names[1])
        if not story:
            raise row.damaged("empty story")
        return Example("", story, question, RELATIONS.index(row.relation), f"k={row.length}")


def _length(path: Path, line: int, name: str) -> int:
    if (task := _TASK.fullmatch(name.strip())) is None:
        raise damaged(path, line, f"got the task {name!r}, expected task_1.2 or similar")
    return int(task[1])


def _names(query: str) -> tuple[str, str] | None:
    """Returns the two names of a query, which is written as a Python tuple; None if it is malformed."""
    try:
        found = ast.literal_eval(query.strip())
    except (SyntaxError, ValueError):
        return None
    two = (
        isinstance(found, tuple) and len(found) == 2 and all(isinstance(name, str) and name for name in found)
    )
    return found if two else None


def _clutrr(name: str, lengths: tuple[int, ...], folder: str, original: str) -> ClutrrTask:
    files = f"'{_COPY}/{folder}/{{train,validation,test}}.csv'"
    return ClutrrTask(
        name=name,
        splits=("train", "validation", "test"),
        classes=RELATIONS,
        metrics=("accuracy",),
        # The paper does not give it; the longest test story has 197 words and punctuation marks.
        max_length=256,
        download=f"mkdir -p {folder} && cd {folder} && curl -L --remote-name-all {files} "
        f"(CC BY-NC 4.0); or {original}/ of the authors' archive, {_ORIGINAL}",
        lengths=lengths,
        folder=folder,
        original=original,
    )


CLUTRR: tuple[ClutrrTask, ...] = (
    _clutrr("clutrr23", (2, 3), "gen_train23_test2to10", "data_089907f8"),
    _clutrr("clutrr234", (2, 3, 4), "gen_train234_test2to10", "data_db9b8f04"),
)
"""The two settings of Figure 5."""
