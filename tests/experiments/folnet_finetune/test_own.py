"""Files of your own: the flags that name them, a run on them, and answers for new texts."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from absl import flags

from experiments import runtime
from experiments.folnet_finetune import EXPERIMENT, data, kinds, model, page, predict, train
from experiments.folnet_finetune.config import Config, OwnConfig, get_config
from experiments.folnet_finetune.measures import BEST, PREDICTIONS
from experiments.runtime import launching
from experiments.runtime.workdir import Workdir, WorkdirError
from folnet import FOLNetForSequenceClassification, parameters
from folnet.tasks import own
from tests.experiments.folnet_finetune.small import ROWS
from tests.folnet import small_tasks
from tests.folnet.small import quickly

pytestmark = pytest.mark.usefixtures("compiled_quickly")

MODEL: dict[str, Any] = {
    "hidden_size": 16,
    "relation_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "head_size": 8,
    "intermediate_size": 24,
    "relation_intermediate_size": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def written(folder: Path) -> OwnConfig:
    """Writes files in which texts with "dog" are the good ones."""
    for name, size in (("train", 12), ("dev", 6)):
        rows = [{"text": f"the {'dog' if n % 2 else 'cat'} sat .", "label": ("bad", "good")[n % 2]}
                for n in range(size)]  # fmt: skip
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return OwnConfig(train=str(folder / "train.jsonl"), validation=str(folder / "dev.jsonl"))


def small(folder: Path, **fields: Any) -> Config:
    config = get_config("own_small")
    sizes = dataclasses.replace(config.model, **MODEL)
    chosen: dict[str, Any] = {"own": written(folder), "model": sizes, "new_vocabulary": 60, "length": 8}
    chosen |= {"batch_size": 4, "epochs": 60, "lr": 0.01, "eval_batch_size": 4, "eval_every": 60}
    return dataclasses.replace(config, **(chosen | fields))


def test_flags_that_stand_for_fields():
    short = ["x", "--data=a.csv", "-label=y", "--workdir=w"]
    assert launching._without_shorthands(EXPERIMENT, short) == [
        "x", "--config=own", "--config.own.train=a.csv", "--config.own.label=y", "--workdir=w",
    ]  # fmt: skip
    named = ["x", "--validation=a", "--config", "own_small"]
    assert launching._without_shorthands(EXPERIMENT, named) == ["x", "--config.own.validation=a", *named[2:]]
    plain = ["x", "--config.data_dir=data", "--workdir=data"]
    assert launching._without_shorthands(EXPERIMENT, plain) == plain
    logged = launching._without_shorthands(EXPERIMENT, ["x", "--log=wandb, mlflow"])
    assert logged == ["x", "--config.log=wandb, mlflow"]
    for nothing in ("--log=", "--log= ,"):
        with pytest.raises(launching.flags.Error, match="--log: got no value, expected --log=NAME,NAME of "):
            launching._without_shorthands(EXPERIMENT, ["x", nothing])
    with pytest.raises(launching.flags.Error, match="--data: got no value, expected --data=VALUE"):
        launching._without_shorthands(EXPERIMENT, ["x", "--data", "a.csv"])


def test_the_model_has_the_names_of_the_classes(tmp_path):
    config = small(tmp_path)
    config.validate()
    made = model.make(config)
    assert made.config.labels == ("bad", "good")
    opened = train.open_data(config)
    assert (opened.train.rows, [split.name for split in opened.dev], opened.test) == (12, ["validation"], ())
    assert opened.train.features.label.tolist() == [0, 1] * 6
    assert config.tokens == 8
    assert dataclasses.replace(config, length=0).tokens == own.LENGTH
    # A changed file is read again.
    text = Path(config.own.train).read_text(encoding="utf-8")
    Path(config.own.train).write_text(text + '{"text": "a", "label": "so"}\n', encoding="utf-8")
    assert data.task_of(config).classes == ("bad", "good", "so")


def test_what_is_refused(tmp_path):
    config = small(tmp_path)
    changes: tuple[tuple[Any, str], ...] = (
        (
            {"own": OwnConfig(train="a.csv")},
            r"own\.validation: got '', expected a file: \.jsonl, \.csv, \.tsv or \.parquet, or a data set",
        ),
        ({"task": "rte"}, r"own: got OwnConfig\(.*\), expected no files with task='rte'"),
        ({"sweep": "16gb"}, "sweep: got '16gb', expected 'none' with task='own'"),
        ({"own": dataclasses.replace(config.own, kind="tree")}, r"own\.kind: got 'tree', expected one of"),
    )
    for change, message in changes:
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(config, **change).validate()
    missing = dataclasses.replace(config, own=dataclasses.replace(config.own, validation="dev.csv"))
    with pytest.raises(WorkdirError, match=r"own\.validation: got dev\.csv, expected an existing file"):
        train.open_data(missing)
    Path(config.own.validation).write_text('{"text": "a", "label": "so"}\n', encoding="utf-8")
    with pytest.raises(
        WorkdirError, match=r"dev\.jsonl, line 1: got the label 'so', expected 'bad' or 'good'"
    ):
        train.open_data(config)


def finished(folder: Path, **labels: Any) -> tuple[Path, Any, Any]:
    """Writes what is read of a run; returns its directory, its model and random parameters."""
    Workdir(folder / "run", small(folder)).close()
    sizes = dataclasses.replace(small(folder).model, vocab_size=ROWS, operators="j.")
    made = FOLNetForSequenceClassification(sizes.settings().replace(**labels))
    rng = np.random.default_rng(7)
    shapes = parameters.shapes(made).items()
    params = parameters.nest({name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes})
    made.save_pretrained(folder / "run" / BEST, params)
    small_tasks.tokenizer().save_pretrained(folder / "run" / BEST)
    return folder / "run", made, params


TEXTS = ["the dog sat .", "the cat sat", "it is a red book"]


@pytest.mark.parametrize("names", [("bad", "good"), ("LABEL_0", "LABEL_1"), ()])
def test_answers_are_those_of_the_model(tmp_path, monkeypatch, capsys, names):
    """Padding is masked, as in the run; with labels, the metrics of the run are printed."""
    numbers = not names
    run, made, params = finished(tmp_path, num_labels=len(names) or 1, labels=names)
    rows = [{"text": text} | ({"label": n + 0.5} if numbers else {}) for n, text in enumerate(TEXTS)]
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    given = flags.FlagValues()
    for name, value in (
        ("run", run),
        ("data", tmp_path / "new.jsonl"),
        ("out", tmp_path / "out" / "a.jsonl"),
    ):
        flags.DEFINE_string(name, str(value), "", flag_values=given)
    given([sys.argv[0]])
    monkeypatch.setattr(predict.flags, "FLAGS", given)
    predict.main()
    printed = json.loads(capsys.readouterr().out)
    assert (printed["rows"], "pearson" in printed, "accuracy" in printed) == (3, numbers, False)
    found = [json.loads(line) for line in (tmp_path / "out" / "a.jsonl").read_text("utf-8").splitlines()]

    ids, segments, mask = small_tasks.tokenizer()(TEXTS, None, length=8)
    logits = np.asarray(quickly(made.apply)({"params": params}, ids, segments, mask).logits, np.float64)
    if numbers:
        np.testing.assert_allclose([float(row["prediction"]) for row in found], logits[:, 0], atol=2e-5)
        assert all("probability" not in row for row in found)
        return
    odds = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert [row["prediction"] for row in found] == [names[n] for n in odds.argmax(axis=1)]
    np.testing.assert_allclose([row["probability"] for row in found], odds.max(axis=1), atol=1e-5)


def test_a_run_on_other_data_gives_no_answers(tmp_path):
    Workdir(tmp_path / "run", Config(task="rte")).close()
    with pytest.raises(ValueError, match=r"--run: got .*run, a run with task='rte', expected task='own'"):
        predict.answers(tmp_path / "run", str(tmp_path / "new.jsonl"))


@pytest.mark.parametrize("ended", [True, False])
def test_a_run_says_what_it_reads_and_has_a_page_when_it_has_ended(tmp_path, monkeypatch, capsys, ended):
    """One that its session's time ended has no results yet."""
    results = {"parameters": 7, "rows": {"train": 6}, "best": {"step": 2, "accuracy": 0.5}, "test": {}}
    result = runtime.FitResult(None, None, 3, {}, results if ended else {}, 1.0, {})
    monkeypatch.setattr("experiments.runtime.loop", lambda *given, **named: result)
    config = small(tmp_path)
    assert train.train(config, train.open_data(config), tmp_path / "run") is result
    assert (tmp_path / "run" / page.PAGE).exists() is ended
    said = "own: kind 'class', first 'text', label 'label'; classes bad, good\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("a,b\nx,0.5\ny,1.5\n", {"kind": "number", "first": "a", "label": "b"}),
        ("a,b,c\nx,y,no\nz,y,yes\n", {"kind": "class", "first": "a", "second": "b", "label": "c"}),
        ("q,l,r,b\nx,y,z,1\n", {"kind": "choices", "first": "q", "second": "l,r", "label": "b"}),
    ],
)
def test_kind_and_columns_are_reported(tmp_path, text, reads):
    for name in ("train.csv", "dev.csv"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    files = {"train": tmp_path / "train.csv", "validation": tmp_path / "dev.csv"}
    named = {name: column for name, column in reads.items() if name != "kind"}
    assert kinds.reading(own.open_own(files, **named)) == reads


@pytest.mark.slow  # a whole run, started as by a user
def test_a_run_learns_its_files_and_answers_new_texts(tmp_path):
    config = small(tmp_path)
    found: Any = train.main(config, workdir=tmp_path / "run")
    assert found.results["best"]["accuracy"] == 1
    assert {path.name for path in (tmp_path / "run" / PREDICTIONS).iterdir()} == {
        "own_validation.jsonl", "own_validation_errors.jsonl", "own_validation_confusion.png",
    }  # fmt: skip
    assert found.results["confusion"] == {"validation": [[3, 0], [0, 3]]}
    assert found.results["own"] == {"kind": "class", "first": "text", "label": "label"}
    assert (tmp_path / "run" / page.PAGE).exists()
    new = tmp_path / "new.csv"
    new.write_text("text\nthe dog sat .\nthe cat sat .\n", encoding="utf-8")
    command = [sys.executable, "-m", "experiments.folnet_finetune.predict", f"--run={tmp_path / 'run'}",
               f"--data={new}", f"--out={tmp_path / 'answers.jsonl'}"]  # fmt: skip
    subprocess.run(command, check=True, cwd=Path(__file__).parents[3])
    rows = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text("utf-8").splitlines()]
    assert [row["prediction"] for row in rows] == ["good", "bad"]
    assert all(0.5 <= row["probability"] <= 1 for row in rows)
