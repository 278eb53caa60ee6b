"""GLUE's published files: layouts, irregularities, damage, a prepared copy, submissions."""

import json
import re
import shutil
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from folnet.tasks.glue import COLUMNS, GLUE, SMALL
from folnet.tasks.interface import Example
from folnet.tasks.metrics import FINE_TUNED, GLUE_COLUMNS, ZERO_SHOT
from tests.folnet import small_tasks

TASKS = {task.name: task for task in GLUE}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return small_tasks.glue(tmp_path_factory.mktemp("glue"))


def test_every_task_reads_every_split(root):
    """All files are found, labels are present exactly where published, and test rows keep their index."""
    for task in GLUE:
        task.check(root)
        for split in task.splits:
            examples = task.examples(root, split)
            assert examples, (task.name, split)
            assert len({example.second is None for example in examples}) == 1
            for example in examples:
                assert (example.label is None) == split.startswith("test")
                assert task.bounds or example.label is None or 0 <= example.label < len(task.classes)
            assert [example.index for example in examples] == [
                str(i) for i in range(len(examples))
            ] or examples.skipped


@pytest.mark.parametrize(
    ("name", "split", "place", "expected"),
    [
        ("cola", "train", 0, Example("0", '"The dog, it sat.', None, 1)),
        ("cola", "validation", 1, Example("1", "Dog the sat.", None, 0)),
        ("cola", "test", 1, Example("1", "Walked sister the.", None, None)),
        ("sst2", "train", 1, Example("1", "it was terrible ", None, 0)),
        ("sst2", "test", 1, Example("1", "it \x85 \u2028 is .", None, None)),
        ("mnli", "validation_matched", 0, Example("0", "The man sat.", 'A man was on "it".', 0)),
        ("mnli", "validation_mismatched", 1, Example("1", "The man sat.", 'A man was on "it".', 2)),
        ("mnli", "train", 0, Example("0", "The man sat.", 'A man was on "it".', 1)),
        ("qqp", "train", 0, Example("0", "How is a dog?", 'How is a "cat', 0)),
        ("qqp", "test", 1, Example("1", "Who?", "What?", None)),
        ("qnli", "train", 1, Example("1", "Who?", 'She "said', 1)),
        ("stsb", "train", 1, Example("1", "A man is on a car.", 'A man is in "a car.', 0.8)),
        ("stsb", "validation", 2, Example("2", "A man is on a car.", 'A man is in "a car.', 3.25)),
        ("mrpc", "train", 0, Example("0", 'He "said it.', 'It was "said.', 1)),
        ("mrpc", "validation", 0, Example("0", "She ran.", "They ran.", 0)),
        ("rte", "train", 1, Example("1", "The man sat.", "He ran.", 1)),
    ],
)
def test_rows(root, name, split, place, expected):
    """Quotes, trailing spaces and characters that some take for line ends are text."""
    assert TASKS[name].examples(root, split)[place] == expected


def test_a_row_of_qqp_that_a_line_end_has_cut(root, tmp_path):
    """Both halves are skipped and reported; empty questions are valid; test rows may not be skipped."""
    examples = TASKS["qqp"].examples(root, "train")
    assert [example.label for example in examples] == [0, 1]
    assert examples[1].first == ""
    assert [re.sub(r".*(?=line)", "", stated) for stated in examples.skipped] == [
        "line 3: got 4 columns, expected 6",
        "line 4: got 3 columns, expected 6",
    ]
    lines = (root / "QQP/train.tsv").read_text().split("\n")
    broken = "\n".join([*lines[:2], *(["one\ttwo"] * 11), ""])
    small_tasks.write(tmp_path / "QQP/train.tsv", broken)
    with pytest.raises(
        ValueError, match=r"train\.tsv, line 3: got 2 columns, expected 6 \(11 of 12 rows are malformed"
    ):
        TASKS["qqp"].examples(tmp_path, "train")
    small_tasks.write(tmp_path / "QQP/test.tsv", "id\tquestion1\tquestion2\n0\tWho?\n")
    with pytest.raises(ValueError, match=r"test\.tsv, line 2: got 2 columns, expected 3"):
        TASKS["qqp"].examples(tmp_path, "test")


@pytest.mark.parametrize(
    ("name", "file", "text", "error"),
    [
        (
            "rte",
            "RTE/train.tsv",
            "index\tsentence1\tlabel\n",
            r"line 1: got the header .* expected one with sentence2",
        ),
        ("rte", "RTE/train.tsv", "", r"train\.tsv, line 1: the file is empty"),
        ("rte", "RTE/train.tsv", "index\tsentence1\tsentence2\tlabel\n", "got no rows of train"),
        (
            "rte",
            "RTE/train.tsv",
            "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tmaybe\n",
            r"line 2: got the label 'maybe', expected entailment or not_entailment",
        ),
        (
            "rte",
            "RTE/train.tsv",
            "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\textra\n",
            "line 2: got 5 col",
        ),
        (
            "rte",
            "RTE/train.tsv",
            "index\tsentence1\tsentence2\tlabel\n0\t\t \tentailment\n",
            "line 2: empty sentence1 and sen",
        ),
        (
            "stsb",
            "STS-B/train.tsv",
            "sentence1\tsentence2\tscore\na\tb\t5.5\n",
            r"'5\.5', expected a number from 0 to 5",
        ),
        ("stsb", "STS-B/train.tsv", "sentence1\tsentence2\tscore\na\tb\tnan\n", r"'nan', expected a number"),
        (
            "cola",
            "CoLA/train.tsv",
            "gj04\t1\t\tGood.\ngj04\t2\t\tBad.\n",
            r"line 2: got the label '2', expected 0 or 1",
        ),
        ("cola", "CoLA/train.tsv", "gj04\t1\tGood.\n", r"line 1: got 3 columns, expected 4"),
    ],
)
def test_damage_is_named_by_file_and_line(tmp_path, name, file, text, error):
    """All kinds of damage."""
    path = small_tasks.write(tmp_path / file, text)
    with pytest.raises(ValueError, match=error) as raised:
        TASKS[name].examples(tmp_path, "train")
    assert str(raised.value).startswith(str(path))


def test_test_rows_keep_the_index_of_their_table(tmp_path):
    """By the column `index` or, for QQP, `id`; rows of other splits are counted from 0."""
    small_tasks.write(
        tmp_path / "RTE/test.tsv", small_tasks.tsv("index|sentence1|sentence2", "7|a|b", "3|c|d")
    )
    small_tasks.write(tmp_path / "QQP/test.tsv", small_tasks.tsv("id|question1|question2", "9|a|b"))
    rows = small_tasks.tsv("index|sentence1|sentence2|label", "7|a|b|entailment", "3|c|d|entailment")
    small_tasks.write(tmp_path / "RTE/dev.tsv", rows)
    assert [example.index for example in TASKS["rte"].examples(tmp_path, "test")] == ["7", "3"]
    assert [example.index for example in TASKS["qqp"].examples(tmp_path, "test")] == ["9"]
    assert [example.index for example in TASKS["rte"].examples(tmp_path, "validation")] == ["0", "1"]


def test_ten_rows_or_one_in_a_thousand_may_be_malformed(tmp_path):
    header, good = "id|qid1|qid2|question1|question2|is_duplicate", "0|1|2|a|b|1"
    for rows, bad, fits in ((2, 10, True), (2, 11, False), (10_989, 11, True), (10_988, 11, False)):
        text = small_tasks.tsv(header, *[good] * rows, *["one|two"] * bad)
        small_tasks.write(tmp_path / "QQP/train.tsv", text)
        if fits:
            found = TASKS["qqp"].examples(tmp_path, "train")
            assert (len(found), len(found.skipped)) == (rows, bad)
        else:
            with pytest.raises(ValueError, match=f"{bad} of {rows + bad} rows are malformed"):
                TASKS["qqp"].examples(tmp_path, "train")


def test_records_of_a_prepared_copy_are_checked(tmp_path, monkeypatch):
    """Fields and classes; the order is that of `idx`, which is also the index."""
    folder = tmp_path / "glue" / "rte" / "1.0.0"
    small_tasks.write(folder / "dataset_info.json", "{}")

    def examples(*records, split="train", task="rte"):
        named = [(f"record {number}", record) for number, record in enumerate(records)]
        monkeypatch.setattr("folnet.tasks.glue.task_tfds.records", lambda folder, split: iter(named))
        return list(TASKS[task].examples(tmp_path, split))

    one = {"sentence1": "a", "sentence2": "b", "label": 1, "idx": 12}
    two = {"sentence1": "c", "sentence2": "d", "label": 0, "idx": 3}
    assert examples(one, two) == [Example("3", "c", "d", 0), Example("12", "a", "b", 1)]
    assert examples(one | {"label": -1}, split="test") == [Example("12", "a", "b", None)]
    for wrong in (-1, 2):
        with pytest.raises(ValueError, match=f"record 1: got the label {wrong}, expected 0 to 1"):
            examples(two, one | {"label": wrong})
    for name in one:
        with pytest.raises(ValueError, match=f"record 0: missing {name}"):
            examples({key: value for key, value in one.items() if key != name})
    with pytest.raises(ValueError, match="got no rows of train, expected at least one"):
        examples()
    small_tasks.write(tmp_path / "glue" / "cola" / "1.0.0" / "dataset_info.json", "{}")
    single = {"sentence": "a", "label": 1, "idx": 4}
    assert examples(single, task="cola") == [Example("4", "a", None, 1)]


def test_bytes_that_are_no_text(tmp_path):
    """The error names their line."""
    (tmp_path / "CoLA").mkdir()
    (tmp_path / "CoLA/train.tsv").write_bytes(b"gj04\t1\t\tGood.\ngj04\t1\t\tGo\xff.\n")
    with pytest.raises(ValueError, match=r"train\.tsv, line 2: not UTF-8"):
        TASKS["cola"].examples(tmp_path, "train")


def test_what_is_missing_and_how_to_get_it(root, tmp_path):
    """All splits at once, with the command, without reading any file."""
    with pytest.raises(
        ValueError, match=r"/nowhere \(no such.*RTE/train\.tsv.*RTE/dev\.tsv.*RTE\.zip.*tfds build"
    ):
        TASKS["rte"].check("/nowhere")
    with pytest.raises(ValueError, match=r"expected qnli's validation: QNLI/dev\.tsv\. .*QNLIv2\.zip"):
        TASKS["qnli"].check(tmp_path, ["validation"])
    message = "split: got 'dev', expected one of 'train', 'validation', 'test' for cola"
    with pytest.raises(ValueError, match=message):
        TASKS["cola"].examples(root, "dev")
    for task in GLUE:
        with pytest.raises(ValueError, match=f"{task.folder}/{task.files['train']}.*Get it: .*https://"):
            task.check(tmp_path)
    # The tables of all tasks have the same names: another task's folder is not this one's.
    TASKS["rte"].check(root / "RTE")
    with pytest.raises(ValueError, match="expected qnli's"):
        TASKS["qnli"].check(root / "RTE")


def test_mrpc_from_its_own_files(root, tmp_path):
    """The list of ids separates training and validation; the test file's labels are left out."""
    rows = ["1|10|11|A dog.|The dog.", "0|12|13|A cat.|A man.", '1|14|15|He "ran.|She ran.']
    header = "\ufeff" + small_tasks.tsv(small_tasks.MRPC_HEADER)
    small_tasks.write(tmp_path / "MRPC/msr_paraphrase_train.txt", header + small_tasks.tsv(*rows))
    small_tasks.write(tmp_path / "MRPC/msr_paraphrase_test.txt", header + small_tasks.tsv(*rows[:2]))
    with pytest.raises(ValueError, match=r"expected mrpc's train: MRPC/train\.tsv or .*mrpc_dev_ids\.tsv"):
        TASKS["mrpc"].check(tmp_path, ["train"])
    small_tasks.write(tmp_path / "MRPC/mrpc_dev_ids.tsv", "12\t13\n")
    mrpc = TASKS["mrpc"]
    assert list(mrpc.examples(tmp_path, "train")) == [
        Example("0", "A dog.", "The dog.", 1),
        Example("2", 'He "ran.', "She ran.", 1),
    ]
    assert list(mrpc.examples(tmp_path, "validation")) == [Example("1", "A cat.", "A man.", 0)]
    assert [example.label for example in mrpc.examples(tmp_path, "test")] == [None, None]
    small_tasks.write(tmp_path / "MRPC/mrpc_dev_ids.tsv", "13\t12\n")
    with pytest.raises(ValueError, match="MRPC: got no rows of validation"):
        mrpc.examples(tmp_path, "validation")
    small_tasks.write(tmp_path / "MRPC/mrpc_dev_ids.tsv", "12\n")
    with pytest.raises(ValueError, match=r"mrpc_dev_ids\.tsv, line 1: got 1 columns, expected 2"):
        mrpc.examples(tmp_path, "train")
    small_tasks.write(tmp_path / "MRPC/msr_paraphrase_test.txt", header + small_tasks.tsv("x|1|2|a|b"))
    with pytest.raises(ValueError, match=r"test\.txt, line 2: got the label 'x', expected 0 or 1"):
        mrpc.examples(tmp_path, "test")
    small_tasks.write(tmp_path / "MRPC/msr_paraphrase_test.txt", header + small_tasks.tsv("1|1|2|a"))
    with pytest.raises(ValueError, match=r"test\.txt, line 2: got 4 columns, expected 5"):
        mrpc.examples(tmp_path, "test")
    small_tasks.write(tmp_path / "MRPC/msr_paraphrase_test.txt", small_tasks.tsv("Quality|a|b|c|d", rows[0]))
    with pytest.raises(ValueError, match=r"test\.txt, line 1: got the header .*, expected \['Quality', "):
        mrpc.examples(tmp_path, "test")


def test_the_bounds_of_a_number_are_allowed():
    task = TASKS["stsb"]
    found = [task.parsed(label) for label in ("0", "0.5", "5", "-0.1", "5.1", "nan", "a")]
    assert found == [0.0, 0.5, 5.0, None, None, None, None]


SUBMITTED = {
    "mnli": ("MNLI-m.tsv", ["neutral", "contradiction"], [1, 2]),
    "qqp": ("QQP.tsv", ["1", "0"], [1, 0]),
    "qnli": ("QNLI.tsv", ["not_entailment"], [1]),
    "sst2": ("SST-2.tsv", ["0", "1"], [0, 1]),
    "cola": ("CoLA.tsv", ["1", "1"], [1, 1]),
    "stsb": ("STS-B.tsv", ["3.12500", "5.00000"], [3.125, 7.5]),
    "mrpc": ("MRPC.tsv", ["0", "1"], [0, 1]),
    "rte": ("RTE.tsv", ["entailment", "not_entailment"], [0, 1]),
}


@pytest.mark.parametrize("name", SUBMITTED)
def test_submissions(root, tmp_path, name):
    """Names, header and labels are those of GLUE's server, and files can be read back in any order."""
    task = TASKS[name]
    file, written, predictions = SUBMITTED[name]
    split = "test_matched" if name == "mnli" else "test"
    examples = task.examples(root, split)
    path = task.write_predictions(tmp_path, split, examples, np.asarray(predictions))
    assert path == tmp_path / file
    rows = [f"{number}\t{label}" for number, label in enumerate(written)]
    assert path.read_bytes().decode() == "\n".join(["index\tprediction", *rows, ""])
    found = task.read_predictions(path, examples[::-1])
    wanted = np.clip(predictions, 0, 5) if task.bounds else predictions
    np.testing.assert_array_equal(found, wanted[::-1])
    if name == "mnli":
        assert task.submission("test_mismatched") == "MNLI-mm.tsv"
    assert task.submission("validation") not in {found[0] for found in SUBMITTED.values()}


def test_columns_of_the_tables():
    """Every column has a task with the split and metric; Table 9's small tasks are four of them."""
    assert tuple(COLUMNS) == GLUE_COLUMNS
    for column, (name, split) in COLUMNS.items():
        assert split in TASKS[name].splits
        assert {FINE_TUNED[column], ZERO_SHOT[column]} <= set(TASKS[name].metrics)
    assert set(SMALL) < set(TASKS)


with tfds.core.registered.skip_registration():

    class Glue(tfds.core.GeneratorBasedBuilder):
        """The features of TFDS's `glue/rte`, `glue/stsb` and `glue/mnli`."""

        BUILDER_CONFIGS = [  # noqa: RUF012
            tfds.core.BuilderConfig(name=name, version="2.0.0") for name in ("rte", "stsb", "mnli")
        ]
        url_infos = {}  # noqa: RUF012 -- nothing is downloaded

        def _info(self):
            text = tfds.features.Text()
            first, second = (
                ("premise", "hypothesis")
                if self.builder_config.name == "mnli"
                else ("sentence1", "sentence2")
            )
            label = (
                np.float32 if self.builder_config.name == "stsb" else tfds.features.ClassLabel(num_classes=3)
            )
            features = {first: text, second: text, "label": label, "idx": np.int32}
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            splits = TASKS[self.builder_config.name].splits
            return {split: self._generate_examples(split) for split in splits}

        def _generate_examples(self, split):
            task = TASKS[self.builder_config.name]
            first, second = task.tfds_columns or task.columns
            for number in range(12):
                label = -1 if split.startswith("test") else 0.5 * (number % 11) if task.bounds else number % 2
                yield number, {first: f"No {number}.", second: "It’s.", "label": label, "idx": number}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfds")
    for name in ("rte", "stsb", "mnli"):
        Glue(data_dir=folder, config=name, file_format="array_record").download_and_prepare()
    return folder


def test_a_prepared_copy(prepared, tmp_path):
    """In the order of the files and with the same labels, from TFDS's folder or its `glue`."""
    for name in ("rte", "stsb", "mnli"):
        for split in TASKS[name].splits:
            examples = TASKS[name].examples(prepared, split)
            assert [example.first for example in examples] == [f"No {number}." for number in range(12)]
            hidden = split.startswith("test")
            scores = [None if hidden else 0.5 * (n % 11) if name == "stsb" else n % 2 for n in range(12)]
            assert [example.label for example in examples] == scores
            assert examples[11] == Example("11", "No 11.", "It’s.", scores[11])
    assert len(TASKS["rte"].examples(prepared / "glue", "train")) == 12
    assert "tensorflow" not in sys.modules
    copy = tmp_path / "glue" / "rte" / "2.0.0"
    shutil.copytree(prepared / "glue" / "rte" / "2.0.0", copy)
    info = json.loads((copy / "dataset_info.json").read_text())
    (copy / "dataset_info.json").write_text(json.dumps({**info, "fileFormat": "tfrecord"}))
    with pytest.raises(ValueError, match="got the file format tfrecord, expected array_record"):
        TASKS["rte"].examples(tmp_path, "train")
