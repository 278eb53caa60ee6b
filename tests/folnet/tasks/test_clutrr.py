"""CLUTRR's files in both forms, accuracy by length, and damaged files."""

import dataclasses

import numpy as np
import pytest

from folnet.tasks.clutrr import CLUTRR, RELATIONS, TEST_LENGTHS
from folnet.tasks.interface import Example
from tests.folnet import small_tasks

SHORT, LONG = CLUTRR

COPY = (
    ",id,story,query,target,target_text,clean_story,proof_state,f_comb,task_name,story_edges,edge_types,"
    "query_edge"
)
ORIGINAL = (
    ",id,story,query,text_query,target,text_target,clean_story,proof_state,f_comb,task_name,story_edges,edge_types,"
    "query_edge,genders,syn_story,node_mapping,task_split"
)
# Written here, in the form of the files: names in brackets, quoted commas, a story of two lines.
STORY = '"[Scott] is the brother of [Lewis], and [Jason] said ""my\n[Lewis]\'s father is a man""."'
EDGES = '"[(0, 1), (1, 2)]","[\'grandson\', \'brother\']","(0, 2)"'


def copy_row(number, relation="grandson", k=2, story=STORY, query="\"('Jason', 'Lewis')\""):
    """Returns a row of Hugging Face's copy."""
    label = RELATIONS.index(relation) if relation in RELATIONS else 0
    return f"{number},id{number},{story},{query},{label},{relation},{story},[],x-y,task_1.{k},{EDGES}"


def original_row(number, relation="grandson", k=2):
    """Returns a row of the authors' files: `target` is the relation, `text_query` is empty."""
    story = "[Jason] sat. [Lewis] ran."
    query = "\"('Jason', 'Lewis')\""
    edges = f"{EDGES},Jason:male,,{{}},test"
    return f"{number},id{number},{story},{query},,{relation},[],{story},[],x-y,task_1.{k},{edges}"


def csv(header, *rows):
    """Formats rows as the text of a CSV file."""
    return "\n".join([header, *rows, ""])


def test_the_copy(tmp_path):
    """Brackets are removed, the query becomes a question, and the group is the length."""
    rows = [copy_row(0), copy_row(1, "mother-in-law", 3, "[Jason] sat.")]
    for split in SHORT.splits:
        small_tasks.write(tmp_path / "gen_train23_test2to10" / f"{split}.csv", csv(COPY, *rows))
        examples = SHORT.examples(tmp_path, split)
        story = 'Scott is the brother of Lewis, and Jason said "my\nLewis\'s father is a man".'
        question = "How is Lewis related to Jason?"
        assert list(examples) == [
            Example("0", story, question, RELATIONS.index("grandson"), "k=2"),
            Example("1", "Jason sat.", question, RELATIONS.index("mother-in-law"), "k=3"),
        ]
    small_tasks.write(tmp_path / "train.csv", csv(COPY, copy_row(0, query='"(""O\'Neil"", \'Jo\')"')))
    assert LONG.examples(tmp_path, "train")[0].second == "How is Jo related to O'Neil?"
    small_tasks.write(tmp_path / "train.csv", csv(COPY))
    with pytest.raises(ValueError, match=r"train\.csv, line 1: got no rows"):
        LONG.examples(tmp_path, "train")
    SHORT.check(tmp_path / "gen_train23_test2to10")
    examples = SHORT.examples(tmp_path, "test")
    scores = SHORT.score(examples, np.asarray([RELATIONS.index("grandson"), 0]))
    assert scores == {"accuracy": 0.5, "accuracy/k=2": 1.0, "accuracy/k=3": 0.0}
    features = SHORT.features(examples, small_tasks.tokenizer())
    assert features.input_ids.shape == (2, 256)
    path = SHORT.write_predictions(tmp_path, "test", examples, np.asarray([3, 20]))
    assert path.name == "clutrr23_test.tsv"
    assert path.read_text() == "index\tprediction\n0\tbrother\n1\tsister-in-law\n"


def test_texts_as_the_released_program_takes_them(tmp_path):
    """Exactly as in the file, including brackets."""
    small_tasks.write(tmp_path / "train.csv", csv(COPY, copy_row(0)))
    (example,) = dataclasses.replace(SHORT, released=True).examples(tmp_path, "train")
    story = '[Scott] is the brother of [Lewis], and [Jason] said "my\n[Lewis]\'s father is a man".'
    assert (example.first, example.second) == (story, "('Jason', 'Lewis')")
    assert example._replace(first="", second="") == SHORT.examples(tmp_path, "train")[0]._replace(
        first="", second=""
    )


def test_the_authors_files(tmp_path):
    """Nine files form one test split with consecutive indices; there is no validation split."""
    folder = tmp_path / "data_db9b8f04"
    for k in TEST_LENGTHS:
        small_tasks.write(
            folder / f"1.{k}_test.csv", csv(ORIGINAL, *(original_row(i, "aunt", k) for i in range(2)))
        )
    small_tasks.write(folder / "1.2,1.3,1.4_train.csv", csv(ORIGINAL, original_row(0, "wife", 4)))
    test = LONG.examples(tmp_path, "test")
    assert [example.group for example in test] == [f"k={k}" for k in range(2, 11) for _ in range(2)]
    assert [example.index for example in test] == [str(i) for i in range(18)]
    assert {example.label for example in test} == {RELATIONS.index("aunt")}
    assert LONG.examples(folder, "train")[0].label == RELATIONS.index("wife")
    with pytest.raises(
        ValueError, match=r"expected clutrr234's validation: gen_train234_test2to10/validation\.csv\. Get"
    ):
        LONG.check(tmp_path)
    (folder / "1.7_test.csv").unlink()
    with pytest.raises(
        ValueError, match=r"expected clutrr234's test: .*data_db9b8f04/1\.2_test\.csv \.\.\.\. Get it"
    ):
        LONG.check(tmp_path, ["test"])
    with pytest.raises(ValueError, match=r"expected clutrr23's train: .*1\.2,1\.3_train\.csv"):
        SHORT.check(tmp_path, ["train"])


@pytest.mark.parametrize(
    ("header", "row", "error"),
    [
        (
            COPY.replace("story,", "text,", 1),
            copy_row(1),
            r"line 1: got the header .* expected one with story",
        ),
        (COPY, copy_row(1, "cousin"), "line 5: got the relation 'cousin', expected one of aunt"),
        (COPY, copy_row(1, query="Jason"), r"line 5: got the query 'Jason', expected \('name', 'name'\)"),
        (COPY, copy_row(1, query="\"('Jason', 'Lewis', 'Scott')\""), "line 5: got the query"),
        (COPY, copy_row(1, query="\"('Jason', 3)\""), "line 5: got the query"),
        (COPY, copy_row(1, query="\"('Jason', '')\""), "line 5: got the query"),
        (COPY, copy_row(1, k=4), "line 5: got a chain of 4 relations, expected 2, 3 for clutrr23"),
        (COPY, copy_row(1, k="x"), r"line 5: got the task 'task_1\.x'"),
        (COPY, copy_row(1, story="[]"), "line 5: empty story"),
        (COPY, "1,id1,[Jason] sat.", "line 5: got another number of columns"),
        (COPY, copy_row(1) + ",more", "line 5: got another number of columns"),
        (COPY, '1,id1,"[Jason] sat.', "line 5: not CSV"),
    ],
)
def test_damage_is_named_by_file_and_line(tmp_path, header, row, error):
    """The first example spans three lines because of its story, so the second begins at line 5."""
    path = small_tasks.write(tmp_path / "train.csv", csv(header, copy_row(0, story='"[Jason]\nsat."'), row))
    with pytest.raises(ValueError, match=error) as raised:
        SHORT.examples(tmp_path, "train")
    assert str(raised.value).startswith(str(path))
