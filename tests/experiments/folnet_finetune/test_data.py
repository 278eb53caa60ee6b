"""Fine-tuning's splits and batches: each example once, for all lengths; missing files are reported."""

import collections
import dataclasses
import sys

import numpy as np
import pytest

from experiments.folnet_finetune import data
from folnet import tasks
from tests.experiments.folnet_finetune import small as small_finetune
from tests.folnet import small_tasks

RTE = tasks.SEQUENCE_TASKS["rte"]


def features(count, length=32, seed=0):
    """Returns texts of 3 to T tokens, which all equal the text's number."""
    sizes = np.random.default_rng(seed).integers(3, length + 1, count)
    mask = np.arange(length)[None] < sizes[:, None]
    ids = np.where(mask, np.arange(1, count + 1)[:, None], 0).astype(np.int32)
    return tasks.Features(ids, np.zeros_like(ids), mask, np.arange(count, dtype=np.int32))


@pytest.fixture
def config(tmp_path):
    return small_finetune.small(tmp_path, tmp_path, batch_size=4, length=32)


@pytest.mark.parametrize("lengths", [(), (8, 20)])
def test_an_epoch_has_every_example_once(config, lengths):
    """With one or several lengths; each epoch has its own, reproducible order."""
    config.lengths, config.mask_padding = lengths, bool(lengths)
    count = 4 * 40 + 3  # more than a pool, and a batch that is not full
    batches = data.Batches(features(count), config)
    epochs = []
    for epoch in range(2):
        seen, widths = [], set()
        for step in range(epoch * 41, (epoch + 1) * 41):
            batch = batches(step)
            real = batch["weight"] > 0
            assert batch["input_ids"].shape[0] == 4
            assert (batch["label"][~real] == tasks.NO_LABEL).all()
            # A row's first id is its number: labels stay with their rows, and no token is cut off.
            np.testing.assert_array_equal(batch["input_ids"][real, 0] - 1, batch["label"][real])
            whole = features(count).attention_mask.sum(1)[batch["label"][real]]
            np.testing.assert_array_equal((batch["input_ids"] > 0).sum(1)[real], whole)
            assert ("attention_mask" in batch) == bool(lengths)
            seen += batch["label"][real].tolist()
            widths.add(batch["input_ids"].shape[1])
        assert sorted(seen) == list(range(count))
        assert widths == {*lengths, 32}
        epochs.append(seen)
    assert epochs[0] != epochs[1]
    again = data.Batches(features(count), config)
    for step in (60, 3):  # of any epoch, in any order
        for name, array in batches(step).items():
            np.testing.assert_array_equal(array, again(step)[name])
    config.seed = 1
    other = data.Batches(features(count), config)
    assert (other(0)["label"] != batches(0)["label"]).any()


def test_batches_of_several_lengths_are_short(config):
    """If half of the texts are short, at least three in four of their batches are short, too."""
    config.lengths, config.mask_padding = (8,), True
    rows = features(400)
    rows.attention_mask[:200, 8:] = False
    batches = data.Batches(rows, config)
    widths = collections.Counter(batches(step)["input_ids"].shape[1] for step in range(100))
    assert widths[8] >= 45


@pytest.mark.parametrize("lengths", [(), (8, 20)])
def test_measuring_goes_through_all_rows_once(config, lengths):
    config.lengths, config.mask_padding, config.eval_batch_size = lengths, bool(lengths), 5
    rows = features(23)
    split = data.Split("validation", [None] * 23, rows)
    seen = []
    for places, batch in data.sequential(split, config):
        assert batch["input_ids"].shape[0] == 5
        assert set(batch) <= {"input_ids", "token_type_ids", "attention_mask"}
        np.testing.assert_array_equal(batch["input_ids"][: len(places), 0] - 1, places)
        assert ((batch["input_ids"] > 0).sum(1)[: len(places)] == rows.attention_mask.sum(1)[places]).all()
        seen += places.tolist()
    assert sorted(seen) == list(range(23))


def test_spans_of_rows_that_are_filled_in_are_ignored(tmp_path):
    small_tasks.write_squad(tmp_path)
    config = small_finetune.small(
        tmp_path, tmp_path, task="squad2", length=48, stride=16, query_length=12, batch_size=4
    )
    opened = data.open_data(config, small_tasks.tokenizer())
    assert [split.name for split in opened.measured] == ["validation"]
    assert opened.train.rows > len(opened.train.examples)  # several windows a paragraph
    batches = data.Batches(opened.train.features, config)
    last = batches(config.steps_per_epoch(opened.train.rows) - 1)
    filled = last["weight"] == 0
    assert filled.sum() == -opened.train.rows % 4 > 0
    assert (last["start"][filled] == tasks.NO_LABEL).all()
    assert (last["end"][filled] == tasks.NO_LABEL).all()
    rows = opened.train.features
    for real, found in enumerate(last["input_ids"][~filled]):  # each window is another
        (place,) = np.flatnonzero((rows.input_ids == found).all(axis=1))
        for name in ("start", "end"):
            assert last[name][real] == getattr(rows, f"{name}_positions")[place]
    assert (last["start"][~filled] < last["end"][~filled]).any()
    steps = [opened.train.features.first[opened.train.features.question == number] for number in (0, 8)]
    assert set(np.diff(steps[0]).tolist()) == {16}
    assert opened.train.features.column.max() <= 12 + 2
    (evaluated, batch) = next(iter(data.sequential(opened.dev[0], config)))
    assert set(batch) == {"input_ids", "token_type_ids"}  # neither labels nor answers
    assert len(evaluated) == 2


def test_which_splits_a_run_has(tmp_path):
    """GLUE's hidden test split is only for predictions, CLUTRR's always read; it has no validation split."""
    small_tasks.glue(tmp_path)
    small_finetune.write_clutrr(tmp_path)
    tokenizer = small_tasks.tokenizer()

    def splits(**fields):
        opened = data.open_data(small_finetune.small(tmp_path, tmp_path, **fields), tokenizer)
        return [split.name for split in opened.dev], [(split.name, split.labelled) for split in opened.test]

    halves = ["validation_matched", "validation_mismatched"]
    assert splits(task="mnli") == (halves, [("test_matched", False), ("test_mismatched", False)])
    assert splits(task="mnli", predict=False) == (halves, [])
    assert splits(task="clutrr23", predict=False) == ([], [("test", True)])
    texts = [
        data.task_of(
            small_finetune.small(tmp_path, tmp_path, task="clutrr23", released_text=released)
        ).examples(tmp_path, "train")[0][1:3]
        for released in (True, False)
    ]
    assert texts == [
        ("[Jason] sat. [Lewis] ran.", "('Jason', 'Lewis')"),
        ("Jason sat. Lewis ran.", "How is Lewis related to Jason?"),
    ]
    (tmp_path / "RTE/test.tsv").unlink()
    assert splits() == (["validation"], [])


def test_a_fingerprint_changes_with_vocabulary_rows_and_training_tokens(tmp_path):
    small_finetune.write_rte(tmp_path)
    config = small_finetune.small(tmp_path, tmp_path)

    def fingerprint(lowercase=True):
        return data.fingerprint(data.open_data(config, small_tasks.tokenizer(lowercase)))

    before = fingerprint()
    assert fingerprint() == before
    assert fingerprint(False)["vocabulary"] != before["vocabulary"]
    small_finetune.write_rte(tmp_path, train=4, dev=2)
    after = fingerprint()
    assert {name for name in before if after[name] != before[name]} == {
        "rows of train", "rows of validation", "tokens of train",
    }  # fmt: skip


def test_a_task_of_another_kind_and_a_missing_library_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(data.tasks, "open_task", lambda name: object())
    with pytest.raises(ValueError, match="task: got a object, expected one of SequenceTask, SquadTask"):
        data.task_of(small_finetune.small(tmp_path, tmp_path))
    monkeypatch.undo()
    small_finetune.write_rte(tmp_path)
    small_tasks.tokenizer().save(tmp_path / "vocab.txt")
    config = small_finetune.small(tmp_path, tmp_path)
    assert data.missing(config) == []
    for module in ("sklearn", "sklearn.metrics"):
        monkeypatch.setitem(sys.modules, module, None)
    (found,) = data.missing(config)
    assert "expected the extra 'metrics': pip install 'logic-zoo[metrics]'" in found


def test_missing_files_are_reported(tmp_path):
    """All at once, with instructions."""
    (found,) = data.missing(small_finetune.small(tmp_path, tmp_path / "none"))[1:]
    assert f"checkpoint: got {tmp_path / 'none'}, expected a directory" in found
    assert "experiments.folnet_pretrain.load --pretrained=RUN" in found
    assert "experiments.folnet_pretrain.convert" in found
    (found,) = data.missing(small_finetune.small(small_tasks.glue(tmp_path), tmp_path))
    assert found.startswith(f"vocabulary: got {tmp_path / 'vocab.txt'}, expected a file")
    (found,) = data.missing(small_finetune.small(tmp_path, None))
    assert found.startswith("vocabulary: got '', expected a file")
    (found,) = data.missing(small_finetune.small(tmp_path, None, vocabulary=str(tmp_path / "v.txt")))
    assert "v.txt" in found
    for split in ("dev", "train"):
        (tmp_path / f"RTE/{split}.tsv").unlink()
    small_tasks.tokenizer().save(tmp_path / "vocab.txt")
    (found,) = data.missing(small_finetune.small(tmp_path, tmp_path))
    assert "expected rte's train: RTE/train.tsv; validation: RTE/dev.tsv. Get it: curl" in found


def test_a_vocabulary_is_learned_from_the_training_split_alone(tmp_path):
    """Its words are whole pieces; those of other splits are not."""
    small_finetune.write_rte(tmp_path, train=6)
    small_tasks.write(
        tmp_path / "RTE/dev.tsv",
        "index\tsentence1\tsentence2\tlabel\n" + "0\tzebras\tzebras zebras\tentailment\n" * 3,
    )
    config = small_finetune.small(tmp_path, None, new_vocabulary=80)
    assert data.missing(config) == []
    tokenizer = data.open_tokenizer(config)
    assert "book" in tokenizer.vocabulary
    assert "zebras" not in tokenizer.vocabulary
    assert tokenizer.vocab_size <= 80
    again = data.open_tokenizer(dataclasses.replace(config, seed=1))
    assert again.fingerprint == tokenizer.fingerprint
    tokenizer.save(tmp_path / "vocab.txt")
    cased = dataclasses.replace(config, lowercase=False)
    read = dataclasses.replace(cased, new_vocabulary=0, vocabulary=str(tmp_path / "vocab.txt"))
    for of in (cased, read):
        assert not data.open_tokenizer(of).lowercase
    for both in (
        dataclasses.replace(config, checkpoint="there"),
        dataclasses.replace(config, vocabulary="there"),
    ):
        with pytest.raises(ValueError, match=r"new_vocabulary: got 80, expected 0 with \w+='there'"):
            both.validate()
