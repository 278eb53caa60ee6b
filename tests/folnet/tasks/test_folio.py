"""FOLIO's two releases, and damaged files."""

import json

import pytest

from folnet.tasks.folio import FOLIO
from folnet.tasks.interface import Example
from tests.folnet import small_tasks

# As in v0.0: blanks at the ends, a blank premise, other keys in each file, another name of the third class.
TRAIN = [
    {
        "story_id": 1,
        "premises": ["A dog is red. ", "", " All red play."],
        "conclusion": "It’s red.",
        "label": "True",
    },
    {
        "story_id": 1,
        "premises": ["A dog is red."],
        "premises-FOL": ["∀x"],
        "conclusion": "It sat. ",
        "label": "False",
    },
    {"story_id": 2, "premises": ["My car\u2028is good."], "conclusion": "It ran.", "label": "Unknown"},
]
# As in v2: the premises are one string.
V2 = [
    {
        "premises": "A dog is red.\nAll red play. \n",
        "conclusion": "It is.",
        "label": "Uncertain",
        "example_id": 7,
    }
]


def lines(records):
    """Returns JSON lines as published."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def test_both_releases(tmp_path):
    """Premises are joined by spaces, the conclusion follows, with three classes; v0.0 is preferred."""
    small_tasks.write(tmp_path / "folio_v2_train.jsonl", lines(V2))
    assert list(FOLIO.examples(tmp_path, "train")) == [
        Example("0", "A dog is red. All red play.", "It is.", 2)
    ]
    small_tasks.write(tmp_path / "data" / "v0.0" / "folio-validation.jsonl", lines(TRAIN[1:]) + "\n")
    assert [example.label for example in FOLIO.examples(tmp_path, "validation")] == [1, 2]
    small_tasks.write(tmp_path / "folio-train.jsonl", lines(TRAIN))
    assert list(FOLIO.examples(tmp_path, "train")) == [
        Example("0", "A dog is red. All red play.", "It’s red.", 0),
        Example("1", "A dog is red.", "It sat.", 1),
        Example("2", "My car\u2028is good.", "It ran.", 2),
    ]
    names = [FOLIO.classes[int(example.label or 0)] for example in FOLIO.examples(tmp_path, "train")]
    assert names == ["True", "False", "Unknown"]
    features = FOLIO.features(FOLIO.examples(tmp_path, "train"), small_tasks.tokenizer())
    assert features.input_ids.shape == (3, 512)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('{"premises": ["a"], "concl', "not JSON"),
        ("[]", "got list, expected an object"),
        ('{"premises": ["a"], "label": "True"}', "missing 'conclusion'"),
        (
            '{"premises": ["a", 3], "conclusion": "b", "label": "True"}',
            "expected premises as a list of texts or a text",
        ),
        ('{"premises": 3, "conclusion": "b", "label": "True"}', "expected premises as"),
        ('{"premises": ["a"], "conclusion": null, "label": "True"}', "and the conclusion as a text"),
        ('{"premises": [" "], "conclusion": "b", "label": "True"}', "no premises"),
        ('{"premises": ["a"], "conclusion": " ", "label": "True"}', "empty conclusion"),
        (
            '{"premises": ["a"], "conclusion": "b", "label": true}',
            "got the label True, expected True or False or Unk",
        ),
    ],
)
def test_damage_is_named_by_file_and_line(tmp_path, line, error):
    """All kinds of damage."""
    path = small_tasks.write(tmp_path / "folio-train.jsonl", lines(TRAIN[:1]) + line + "\n")
    with pytest.raises(ValueError, match=f"line 2: .*{error}") as raised:
        FOLIO.examples(tmp_path, "train")
    assert str(raised.value).startswith(str(path))


def test_what_is_missing(tmp_path):
    """The error gives the address; there is no test split."""
    with pytest.raises(
        ValueError, match=r"folio-validation\.jsonl or folio_v2_validation\.jsonl\. Get it: curl.*Yale"
    ):
        FOLIO.check(tmp_path)
    with pytest.raises(ValueError, match="split: got 'test', expected one of 'train', 'validation' for f"):
        FOLIO.examples(tmp_path, "test")
