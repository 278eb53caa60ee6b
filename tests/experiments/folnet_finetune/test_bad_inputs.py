"""Sixty inputs that cannot be used: one line says which, where and what was expected; nothing is written."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from experiments.folnet_finetune import predict, train
from experiments.folnet_finetune.config import Config
from experiments.runtime.workdir import Workdir, WorkdirError
from folnet import FOLNetConfig, FOLNetForSequenceClassification, parameters
from folnet.model import check_inputs
from folnet.pretrained import CONFIG_FILE, WEIGHTS_FILE
from tests.experiments.folnet_finetune.test_own import MODEL, small
from tests.folnet import small_tasks

GOOD = '{"text": "a dog", "label": "good"}\n'
BAD = '{"text": "a cat", "label": "bad"}\n'


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


class Case(NamedTuple):
    """What is wrong: a file's content, or what is changed of the config; and what is said."""

    says: str
    train: str | bytes = GOOD + BAD
    dev: str | bytes = GOOD
    ending: str = ".jsonl"
    own: dict[str, Any] = {}  # noqa: RUF012
    fields: dict[str, Any] = {}  # noqa: RUF012


FILES = {
    "an empty file": Case(r"train\.jsonl, line 1: the file is empty", ""),
    "an empty validation file": Case(r"dev\.jsonl, line 1: the file is empty", dev=""),
    "blank lines alone": Case(r"train\.jsonl, line 1: .*(empty|no rows)", "\n \n"),
    "Latin-1": Case(r"train\.jsonl, line 2: not UTF-8", GOOD.encode() + b'{"text": "caf\xe9"}\n'),
    "UTF-16": Case(r"train\.jsonl, line 1: not UTF-8", GOOD.encode("utf-16")),
    "half a line": Case(r"train\.jsonl, line 3: not JSON", GOOD + BAD + GOOD[:20]),
    "a list": Case(r"train\.jsonl, line 2: got \[1, 2\], expected an object", GOOD + "[1, 2]\n"),
    "a number": Case(r"train\.jsonl, line 2: got 7, expected an object", GOOD + "7\n"),
    "an empty object": Case(r"train\.jsonl, line 2: got \{\}, expected an object", GOOD + "{}\n"),
    "a row without text": Case(r"train\.jsonl, line 3: missing 'text'", GOOD + BAD + '{"label": "bad"}\n'),
    "a row without a label": Case(r"train\.jsonl, line 2: missing the label", GOOD + '{"text": "a"}\n'),
    "no label": Case(r"train\.jsonl, line 2: missing the label", GOOD + '{"text": "a", "label": null}\n'),
    "an empty label": Case(r"line 2: missing the label 'label'", GOOD + '{"text": "a", "label": " "}\n'),
    "an empty text": Case(r"train\.jsonl, line 1: text: the text is empty", BAD.replace("a cat", " ") + GOOD),
    "a number as text": Case(
        r"train\.jsonl, line 2: text: got 3, expected a text", GOOD + '{"text": 3, "label": "bad"}\n'
    ),
    "null as text": Case(
        r"train\.jsonl, line 2: text: got None, expected a text", GOOD + '{"text": null, "label": "bad"}\n'
    ),
    "a list as label": Case(
        r"train\.jsonl, line 2: label: got \['bad'\], expected", GOOD + '{"text": "a", "label": ["bad"]}\n'
    ),
    "a label that is no number": Case(
        r"train\.jsonl, line 2: label: got nan, expected", GOOD + '{"text": "a", "label": NaN}\n'
    ),
    "one class": Case(r"train\.jsonl: got the label 'good' in all 2 rows, expected at least two", GOOD * 2),
    "one number": Case(
        r"train\.jsonl: got the label '0.5' in all 2 rows, expected at least two",
        lines({"text": "a", "label": 0.5}, {"text": "b", "label": 0.5}),
        lines({"text": "a", "label": 0.5}),
    ),
    "names as labels": Case(
        r"train\.jsonl: got 9 different labels in 9 rows of the column 'label', expected few",
        lines(*({"text": "a", "label": f"id{n}"} for n in range(9))),
    ),
    "an unseen label": Case(
        r"dev\.jsonl, line 2: got the label 'fair', expected 'bad' or 'good'",
        dev=GOOD + GOOD.replace('"good"', '"fair"'),
    ),
    "a validation row without a label": Case(
        r"dev\.jsonl, line 1: missing the label 'label'", dev='{"text": "a"}\n'
    ),
    "other columns in validation": Case(
        r"dev\.jsonl, line 1: missing 'text'", dev='{"words": "a", "label": "bad"}\n'
    ),
    "columns of no usual name": Case(
        r"first: got the columns 'a', 'b', 'label' of .*train\.jsonl, expected the name of the one",
        lines({"a": "x", "b": "y", "label": "good"}, {"a": "x", "b": "y", "label": "bad"}),
    ),
    "no column of labels": Case(
        r"label: got none of 'label', .* among the columns 'text', 'mark' of .*train\.jsonl, expected",
        lines({"text": "x", "mark": "y"}),
    ),
    "an unknown first column": Case(
        r"first: got 'story', expected one of the columns 'text', 'label' of .*train\.jsonl",
        own={"first": "story"},
    ),
    "an unknown second column": Case(
        r"second: got 'story', expected one of the columns", own={"first": "text", "second": "story"}
    ),
    "an unknown column of labels": Case(
        r"label: got 'mark', expected one of the columns", own={"label": "mark"}
    ),
    "a second column alone": Case(
        r"second: got 'text', expected the column of the first texts, too", own={"second": "text"}
    ),
    "a header with two equal names": Case(
        r"train\.csv, line 1: got the header \['text', 'text'\], expected a different name",
        "text,text\na,b\n",
        ending=".csv",
    ),
    "a header with an empty name": Case(
        r"train\.tsv, line 1: got the header \['text', ''\], expected a different name",
        "text\t\na\tb\n",
        ending=".tsv",
    ),
    "too few fields": Case(
        r"train\.csv, line 3: got 1 fields, expected 2 as in the header",
        "text,label\na,bad\nb\n",
        ending=".csv",
    ),
    "too many fields": Case(
        r"train\.csv, line 2: got 3 fields, expected 2 as in the header",
        "text,label\na,bad,c\n",
        ending=".csv",
    ),
    "a header alone": Case(r"train\.csv, line 1: no rows follow the header", "text,label\n", ending=".csv"),
    "an open quote": Case(
        r"train\.csv, line 2: unexpected end of data", 'text,label\n"a,bad\n', ending=".csv"
    ),
    "too few fields between tabs": Case(
        r"train\.tsv, line 2: got 1 fields, expected 2", "text\tlabel\na,bad\n", ending=".tsv"
    ),
    "another ending": Case(r"train\.txt: got the ending '\.txt', expected \.jsonl, \.csv", ending=".txt"),
    "no ending": Case(r"train: got the ending '', expected \.jsonl, \.csv", ending=""),
    "no Parquet": Case(r"train\.parquet: not Parquet", b"PAR1 not really", ending=".parquet"),
    "words as numbers": Case(
        r"train\.jsonl, line 1: got the label 'good', expected a number", own={"kind": "number"}
    ),
    "a word among numbers of validation": Case(
        r"dev\.jsonl, line 1: got the label 'good', expected a number",
        lines({"text": "a", "label": 0.5}, {"text": "b", "label": 1.5}),
    ),
    "an unknown kind of labels": Case(r"own\.kind: got 'word', expected one of", own={"kind": "word"}),
    "numbers to be balanced": Case(
        r"own\.balanced: got True, expected False without classes",
        lines({"text": "a", "label": 0.5}, {"text": "b", "label": 1.5}),
        lines({"text": "b", "label": 1.5}),
        own={"balanced": True},
    ),
    "no validation file": Case(r"own\.validation: got '', expected a file", own={"validation": ""}),
    "a missing file": Case(
        r"own\.validation: got .*none\.jsonl, expected an existing file", own={"validation": "none.jsonl"}
    ),
    "a missing training file": Case(r"none\.jsonl: No such file", own={"train": "none.jsonl"}),
    "a folder": Case(r": Is a directory", own={"train": "folder.jsonl"}),
    "a text of 0 tokens' length": Case(r"length: got 4, expected at least 8", fields={"length": 4}),
    "lengths without a mask": Case(
        r"lengths: got \(8,\), expected \(\) without mask_padding",
        fields={"lengths": (8,), "mask_padding": False, "length": 16},
    ),
    "two vocabularies": Case(
        r"new_vocabulary: got 60, expected 0 with vocabulary='vocab\.txt'", fields={"vocabulary": "vocab.txt"}
    ),
    "a missing vocabulary": Case(
        r"vocabulary: got .*none\.txt, expected a file",
        fields={"new_vocabulary": 0, "vocabulary": "none.txt"},
    ),
    "a vocabulary without special tokens": Case(
        r"vocab\.txt: .*\[PAD\]", fields={"new_vocabulary": 0, "vocabulary": "vocab.txt"}
    ),
    "a vocabulary that does not fit": Case(
        r"vocab_size: got \d+, expected at least \d+",
        fields={"new_vocabulary": 0, "vocabulary": "large.txt", "model": {"vocab_size": 64}},
    ),
    "no folder of a model": Case(
        r"checkpoint: got .*none, expected a directory",
        fields={"new_vocabulary": 0, "checkpoint": "none", "model": None},
    ),
}


def configured(case: Case, folder: Path) -> Config:
    """Writes the files of a case and returns the config that names them."""
    config = small(folder)
    names: dict[str, Any] = {}
    for name, content in (("train", case.train), ("validation", case.dev)):
        path = folder / f"{'dev' if name == 'validation' else 'train'}{case.ending}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        names[name] = str(path)
    (folder / "folder.jsonl").mkdir()
    (folder / "vocab.txt").write_text("a\ncat\n", encoding="utf-8")
    words = [*small_tasks.tokenizer().vocabulary, *(f"word{n}" for n in range(200))]
    (folder / "large.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    fields: dict[str, Any] = {
        name: str(folder / value)
        if name in ("vocabulary", "checkpoint") and "new_vocabulary" in case.fields
        else value
        for name, value in case.fields.items()
    }
    if "model" in fields:
        sizes = fields["model"]
        fields["model"] = Config().model if sizes is None else dataclasses.replace(config.model, **sizes)
    given: dict[str, Any] = {
        name: str(folder / value) if name in ("train", "validation") and value else value
        for name, value in case.own.items()
    }
    own = dataclasses.replace(config.own, **(names | given))
    return dataclasses.replace(config, own=own, **fields)


@pytest.mark.parametrize("name", FILES)
def test_files_and_settings_that_cannot_be_used(name, tmp_path):
    case = FILES[name]
    config = configured(case, tmp_path)
    with pytest.raises((ValueError, WorkdirError), match=case.says) as raised:
        run(config, tmp_path / "run")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


def run(config: Config, workdir: Path) -> None:
    config.validate()
    train.main(config, workdir=workdir)


def saved(folder: Path) -> tuple[Path, FOLNetForSequenceClassification]:
    """Saves a model with random parameters."""
    sizes = {**MODEL, "vocab_size": 60, "num_labels": 2, "labels": ("bad", "good")}
    model = FOLNetForSequenceClassification(FOLNetConfig.from_dict(sizes))
    shapes = parameters.shapes(model).items()
    params = parameters.nest({name: np.zeros(shape, np.float32) for name, shape in shapes})
    model.save_pretrained(folder, params)
    small_tasks.tokenizer().save_pretrained(folder)
    return folder, model


def without_settings(folder: Path) -> None:
    (folder / CONFIG_FILE).unlink()


def damaged_settings(folder: Path) -> None:
    (folder / CONFIG_FILE).write_text("{", encoding="utf-8")


def without_weights(folder: Path) -> None:
    (folder / WEIGHTS_FILE).unlink()


def half_of_the_weights(folder: Path) -> None:
    path = folder / WEIGHTS_FILE
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def other_sizes(folder: Path) -> None:
    settings = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    (folder / CONFIG_FILE).write_text(json.dumps({**settings, "hidden_size": 24}), encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (without_settings, r"checkpoint: .*config\.json"),
        (damaged_settings, r"checkpoint: .*config\.json: got a damaged file \(.*line 1"),
        (without_weights, r"checkpoint: .*model\.safetensors: file not found"),
        (half_of_the_weights, r"checkpoint: .*model\.safetensors: damaged"),
        (other_sizes, r"checkpoint: .*model\.safetensors: does not match config\.json"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_folders_of_models_that_cannot_be_used(spoil: Callable[[Path], None], says, tmp_path):
    folder, _ = saved(tmp_path / "model")
    spoil(folder)
    config = configured(Case(""), tmp_path)
    config = dataclasses.replace(
        config, model=Config().model, checkpoint=str(folder), new_vocabulary=0, length=16
    )
    with pytest.raises((ValueError, WorkdirError), match=says) as raised:
        run(config, tmp_path / "run")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"input_ids": [[60]]}, r"input_ids: got 60 at \[0, 0\], expected 0 to 59"),
        ({"input_ids": [[-1]]}, r"input_ids: got -1 at \[0, 0\], expected 0 to 59"),
        ({"input_ids": [[0.5]]}, r"input_ids: got type float"),
        ({"input_ids": [1, 2]}, r"input_ids: got shape \(2,\), expected \[B, T\]"),
        ({"input_ids": [[1, 2]], "token_type_ids": [[0, 2]]}, r"token_type_ids: got 2 at \[0, 1\]"),
        ({"input_ids": [[1, 2]], "token_type_ids": [[0]]}, r"token_type_ids: got shape \(1, 1\)"),
        ({"input_ids": [[1, 2]], "attention_mask": [[1]]}, r"attention_mask: got shape \(1, 1\)"),
        ({"input_ids": [[1, 2]], "attention_mask": [[0.0, -1e9]]}, r"attention_mask: got type float"),
    ],
)
def test_arrays_that_cannot_be_used(arguments, says, tmp_path):
    _, model = saved(tmp_path / "model")
    arrays: dict[str, Any] = {name: np.array(value) for name, value in arguments.items()}
    params = model.from_pretrained(tmp_path / "model")[1]
    with pytest.raises(ValueError, match=says) as raised:
        model.apply({"params": params}, **arrays)
    assert "\n" not in str(raised.value)
    if re.match(r"\w+: got (-?\d+ at|type)", says.replace("\\", "")) and "mask" not in says:
        with pytest.raises(ValueError, match=says):
            check_inputs(model.config, arrays["input_ids"], arrays.get("token_type_ids"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", r"new\.jsonl, line 1: the file is empty"),
        ('{"words": 3, "mark": 4}\n', r"first: got the columns 'words', 'mark' of .*new\.jsonl"),
        (GOOD + '{"text": ""}\n', r"new\.jsonl, line 2: text: the text is empty"),
        (
            '{"text": "a", "label": "fair"}\n',
            r"new\.jsonl, line 1: got the label 'fair', expected 'bad' or 'good'",
        ),
    ],
)
def test_new_texts_that_cannot_be_answered(content, says, tmp_path):
    Workdir(tmp_path / "run", small(tmp_path)).close()
    saved(tmp_path / "run" / "best")
    (tmp_path / "new.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=says) as raised:
        predict.answers(tmp_path / "run", str(tmp_path / "new.jsonl"))
    assert "\n" not in str(raised.value)


def test_a_run_that_is_not_of_files_of_ones_own(tmp_path):
    Workdir(tmp_path / "run", Config(task="rte")).close()
    with pytest.raises(ValueError, match=r"--run: got .*run, a run with task='rte', expected task='own'"):
        predict.answers(tmp_path / "run", str(tmp_path / "new.jsonl"))
