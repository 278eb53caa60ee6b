"""Batches compared with the text, step by step, on one host and on several."""

import hashlib
import itertools
import pickle
from typing import Any

import grain
import numpy as np
import pytest
from absl import flags
from scipy import stats

from folnet.pretraining.batches import PretrainingBatch, PretrainingBatches
from folnet.pretraining.windows import MemoryWindows, Window
from folnet.tokenization import SPECIAL_TOKENS, WordPieceTokenizer
from tests.folnet.small_text import corpus, split

LENGTH = 32
LEAST_P = 1e-4


def batches(batch_size=16, *, packing="document", length=LENGTH, **arguments):
    return PretrainingBatches(split(length, packing).train, corpus()[1], batch_size, **arguments)


def equal(first: PretrainingBatch, second: PretrainingBatch) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def unmasked(batch):
    """Restores the ids before masking."""
    ids = batch.input_ids.copy()
    rows, places = np.nonzero(batch.mlm_labels >= 0)
    ids[rows, batch.mlm_positions[rows, places]] = batch.mlm_labels[rows, places]
    return ids


def segments(batch):
    """Returns document and place of the tokens in both segments, after checking the special tokens."""
    tokenizer, where = corpus()[1], corpus()[2]
    for ids, types, mask in zip(unmasked(batch), batch.token_type_ids, batch.attention_mask, strict=True):
        size = int(mask.sum())
        assert mask[:size].all()
        assert (ids[size:] == tokenizer.pad_id).all()
        assert ids[0] == tokenizer.cls_id
        assert ids[size - 1] == tokenizer.sep_id
        ends = np.flatnonzero(ids == tokenizer.sep_id)
        assert types.tolist() == [0] * (ends[0] + 1) + [1] * (size - ends[0] - 1) + [0] * (len(ids) - size)
        first = [where[int(number)] for number in ids[1 : ends[0]]]
        second = [where[int(number)] for number in ids[ends[0] + 1 : size - 1]]
        assert len(ends) == (1 if ends[0] == size - 1 else 2)
        yield first, second


def follows(tokens):
    """Returns whether tokens are consecutive in one document."""
    return all(b == (a[0], a[1] + 1) for a, b in itertools.pairwise(tokens))


def test_shapes_are_fixed():
    """So are the dtypes, whatever the objective."""
    for objective in ("sop", "nsp", "pair", "single"):
        batch = batches(8, objective=objective)(3)
        assert [array.shape for array in batch] == [(8, 32)] * 3 + [(8, 5)] * 2 + [(8,)]
        kinds = ["int32", "int32", "bool", "int32", "int32", "int32"]
        assert [str(array.dtype) for array in batch] == kinds


@pytest.mark.parametrize("packing", ["document", "sentences"])
@pytest.mark.parametrize("cut", ["middle", "sentence"])
def test_sentence_order(packing, cut):
    """Two halves of a window, in the order given by the label; both labels are equally likely."""
    found, begins = [], corpus()[3]
    made = batches(32, packing=packing, objective="sop", cut=cut)
    at_sentence = []
    for step in range(2 * len(made)):
        batch = made(step)
        windows = made.windows.take([index for _, index in made.examples(step)])
        rows = zip(segments(batch), batch.next_sentence_label, windows, strict=True)
        for (first, second), label, window in rows:
            assert first
            assert second
            halves = (second, first) if label else (first, second)
            assert follows(halves[0] + halves[1])
            assert not follows(halves[1] + halves[0])
            document, place = halves[1][0]
            if window.starts.any():  # there is a beginning inside
                at_sentence.append(place in begins[document])
            found.append(int(label))
    assert stats.binomtest(sum(found), len(found)).pvalue > LEAST_P
    if cut == "sentence":
        assert all(at_sentence)
        assert len(at_sentence) > 0.6 * len(found)
    else:
        assert np.mean(at_sentence) < 0.3


def test_next_sentence():
    """The label says whether the second segment follows.

    Otherwise it is from another document, begins with a sentence and has the same length.
    """
    made, begins = batches(32, objective="nsp"), corpus()[3]
    found, sizes, elsewhere = [], [], 0
    for step in range(3 * len(made)):
        batch = made(step)
        examples = made.examples(step)
        windows = made.windows.take([index for _, index in examples])
        for (first, second), label, window in zip(
            segments(batch), batch.next_sentence_label, windows, strict=True
        ):
            assert follows(first)
            assert follows(second)
            if label == 0:
                assert follows(first + second)
                assert len(first) + len(second) == len(window.tokens)
            else:
                assert second[0][0] != first[0][0]
                elsewhere += second[0][1] in begins[second[0][0]]
                sizes.append(len(first) + len(second) == len(window.tokens))
            found.append(int(label))
    assert stats.binomtest(sum(found), len(found)).pvalue > LEAST_P
    assert np.mean(sizes) > 0.9
    assert elsewhere > 0.7 * sum(found)


def test_pairs_and_single_segments_have_no_label():
    """The text is complete and in order."""
    for objective in ("pair", "single"):
        made = batches(16, objective=objective)
        batch = made(0)
        assert (batch.next_sentence_label == -1).all()
        windows = made.windows.take([index for _, index in made.examples(0)])
        for (first, second), window in zip(segments(batch), windows, strict=True):
            assert follows(first + second)
            assert len(first + second) == len(window.tokens)
            assert bool(second) == (objective == "pair")


def test_full_windows_across_documents():
    """Documents are separated by a token that is neither masked nor padding."""
    made = batches(16, packing="corpus", objective="sop")
    tokenizer, separated = corpus()[1], 0
    for step in range(len(made)):
        batch = made(step)
        windows = made.windows.take([index for _, index in made.examples(step)])
        inside = [int((window.tokens == tokenizer.sep_id).sum()) for window in windows]
        assert ((unmasked(batch) == tokenizer.sep_id).sum(axis=1) - 2).tolist() == inside
        assert tokenizer.sep_id not in batch.mlm_labels
        separated += sum(inside)
    assert separated >= 5


def test_no_special_token_is_masked():
    """For all objectives, with and without whole words; the rate is 15 %."""
    tokenizer = corpus()[1]
    for objective in ("sop", "nsp", "single"):
        for whole_words in (False, True):
            made = batches(64, objective=objective, whole_words=whole_words)
            batch = made(1)
            labels = batch.mlm_labels[batch.mlm_labels >= 0]
            assert not np.isin(labels, tokenizer.special_ids).any()
            tokens = batch.attention_mask.sum() - 64 * (2 if objective == "single" else 3)
            assert abs(len(labels) / tokens - 0.15) < 0.02


def test_each_window_once_an_epoch():
    """Epochs have different orders, whatever the batch size; a batch may span two epochs."""
    windows = split(LENGTH).train
    for batch_size in (9, 16, 200):
        made = batches(batch_size)
        total = 3 * len(windows) // batch_size + 1
        examples = [example for step in range(total) for example in made.examples(step)]
        orders = [[index for epoch, index in examples if epoch == wanted] for wanted in range(3)]
        assert [epoch for epoch, _ in examples] == sorted(epoch for epoch, _ in examples)
        for order in orders:
            assert sorted(order) == list(range(len(windows)))
        assert orders[0] != orders[1] != orders[2]
    assert len(windows) % 9
    # Another order from a newer library would break the continuation of runs without a word.
    assert [index for _, index in batches(6).examples(0)] == [49, 83, 10, 45, 39, 69]
    plain = batches(7, shuffle=False)
    assert [index for _, index in plain.examples(0) + plain.examples(1)] == list(range(14))


@pytest.mark.parametrize("process_count", [1, 2, 3])
@pytest.mark.parametrize("repeat", [True, False])
def test_hosts_share_each_batch(process_count, repeat):
    """Their rows together are the batch of one host, and each window is used once."""
    whole = batches(18, repeat=repeat, objective="nsp")
    parts = [
        batches(18, repeat=repeat, objective="nsp", process_index=index, process_count=process_count)
        for index in range(process_count)
    ]
    seen = []
    for step in range(len(whole)):
        rows = [np.concatenate(arrays) for arrays in zip(*(part(step) for part in parts), strict=True)]
        assert equal(PretrainingBatch(*rows), whole(step))
        seen += [example for part in parts for example in part.examples(step)]
    first_epoch = [index for epoch, index in seen if epoch == 0]
    assert sorted(first_epoch) == list(range(len(whole.windows)))
    assert len(set(seen)) == len(seen)


def test_one_epoch():
    """Every window is used once; the rest of the last batch is empty, and there are no further steps."""
    made = batches(64, repeat=False, shuffle=False)
    rows = sum(int(batch.attention_mask.any(axis=1).sum()) for batch in made)
    assert rows == len(made.windows)
    last = made(len(made) - 1)
    empty = ~last.attention_mask.any(axis=1)
    assert empty.any()
    assert (last.input_ids[empty] == corpus()[1].pad_id).all()
    assert (last.mlm_labels[empty] == -1).all()
    assert (last.next_sentence_label[empty] == -1).all()
    assert sum(1 for _ in made.dataset()) == len(made)
    with pytest.raises(ValueError, match=rf"step: got {len(made)}, .* at most {len(made) - 1}"):
        made(len(made))


def test_a_batch_depends_on_its_step_alone():
    """It does not depend on earlier calls, the object or the process, and it changes with the seed."""
    made = batches(16, objective="nsp")
    expected = [made(step) for step in range(30)]
    fresh = batches(16, objective="nsp")
    for step in (29, 3, 17):
        assert equal(fresh(step), expected[step])
        assert equal(pickle.loads(pickle.dumps(made))(step), expected[step])
    assert equal(fresh(np.int64(3)), expected[3])
    assert not equal(batches(16, objective="nsp", seed=1)(3), expected[3])
    seeds = [batches(16, shuffle=False, seed=seed)(0) for seed in (0, 2**32 - 1)]
    assert not np.array_equal(seeds[0].mlm_positions, seeds[1].mlm_positions)
    assert not np.array_equal(seeds[0].next_sentence_label, seeds[1].next_sentence_label)


@pytest.mark.parametrize(
    ("arguments", "recorded"),
    [
        ({}, "53d86422a322c133"),
        (
            {"objective": "sop", "cut": "middle", "mask_rate": 0.15, "dynamic": True, "seed": 0},
            "53d86422a322c133",
        ),
        ({"objective": "nsp"}, "fe68253f035173c7"),
        ({"objective": "pair", "whole_words": True, "seed": 3}, "24d27dedaf3f458e"),
        ({"objective": "single", "dynamic": False, "mask_rate": 0.3, "predictions": 4}, "10f8e9a799bfc2aa"),
    ],
)
def test_batches_stay_what_they_are(arguments, recorded):
    """Recorded batches of two epochs: a continued run must see those that it would have seen.

    The first two are alike, since a run that states the defaults is one that does not.
    """
    made = batches(40, **arguments)
    found = hashlib.sha256()
    for step in (0, len(made), 2 * len(made) - 1):
        for array in made(step):
            found.update(array.tobytes())
    assert found.hexdigest().startswith(recorded)


def test_an_example_does_not_depend_on_its_batch():
    """A window in an epoch gives the same example in any batch."""
    large, small = batches(60), batches(7)
    rows = {}
    for made in (large, small):
        for step in range(60 // made.batch_size):
            batch = made(step)
            for row, example in enumerate(made.examples(step)):
                rows.setdefault(example, []).append(tuple(array[row].tobytes() for array in batch))
    twice = [found for found in rows.values() if len(found) == 2]
    assert len(twice) == 56
    assert all(first == second for first, second in twice)


def test_dynamic_and_static():
    """Drawn anew in each epoch, or the same in all."""
    for dynamic in (True, False):
        made = batches(len(split(LENGTH).train), shuffle=False, dynamic=dynamic)
        first, second = made(0), made(1)
        assert made.examples(1)[0] == (1, 0)
        assert equal(first, second) != dynamic
        changed = [
            not np.array_equal(a, b) for a, b in zip(first.mlm_positions, second.mlm_positions, strict=True)
        ]
        assert np.mean(changed) > 0.9 if dynamic else not any(changed)


def test_grain_resumes_where_it_was(caplog):
    """The dataset yields the batches of consecutive steps, and an iterator's position can be saved."""
    made = batches(16)
    dataset = made.dataset()
    assert isinstance(dataset, grain.IterDataset)
    iterator = iter(dataset)
    for step in range(3):
        assert equal(next(iterator), made(step))
    state = iterator.get_state()
    again: Any = iter(batches(16).dataset(threads=3, ahead=1))
    again.set_state(state)
    assert equal(next(again), made(3))
    assert not caplog.messages  # as Grain has for more threads than batches ahead
    assert sum(1 for _ in made.dataset(5)) == 5
    for arguments, message in (
        ({"threads": 0}, "threads: .*, expected at least 1"),
        ({"ahead": 0}, "ahead: .*, expected at least 1"),
        ({"workers": -1}, "workers: .*, expected at least 0"),
        ({"steps": -1}, "steps: .*, expected at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            made.dataset(**arguments)


@pytest.mark.slow
def test_grain_in_other_processes():
    """The batches are the same. Grain reads absl's flags, which the program has parsed."""
    flags.FLAGS(["test"])
    made = batches(16, objective="nsp")
    for step, batch in enumerate(made.dataset(6, workers=2)):
        assert equal(batch, made(step))
    flags.FLAGS.unparse_flags()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size: got 0, expected at least 1"),
        ({"seed": -1}, r"seed: got -1, expected 0 to 4294967295"),
        ({"seed": 2**32}, r"seed: got 4294967296, expected 0 to 4294967295"),
        ({"process_index": 2, "process_count": 2}, r"process_index: got 2, expected 0 to 1"),
        ({"process_count": 3}, "batch_size: got 16, expected a multiple of process_count=3"),
        ({"objective": "mlm"}, "objective: got 'mlm', expected one of"),
        ({"cut": "end"}, "cut: got 'end', expected one of"),
        ({"mask_rate": 0.0}, "rate: got 0.0, expected above 0"),
        ({"predictions": 0}, "places: .*, expected at least 1"),
    ],
)
def test_bad_arguments(arguments, message):
    """The error names the argument."""
    with pytest.raises(ValueError, match=message):
        batches(**arguments)


def test_windows_and_tokenizer_must_belong_together():
    """Neither may be empty."""
    tokenizer = corpus()[1]
    other = WordPieceTokenizer([*SPECIAL_TOKENS, "a"])
    with pytest.raises(ValueError, match=r"tokenizer: got vocabulary \w+, expected \w+, the one of the"):
        PretrainingBatches(split(LENGTH).train, other, 4)
    none = MemoryWindows([], room=9, packing="document", vocabulary=tokenizer.fingerprint)
    with pytest.raises(ValueError, match="windows: got none, expected at least one"):
        PretrainingBatches(none, tokenizer, 4)
    bare = WordPieceTokenizer(SPECIAL_TOKENS)
    one = Window(np.asarray([1, 1], np.uint16), np.asarray([0], np.uint16), 0, 1)
    unknown = MemoryWindows([one], room=9, packing="document", vocabulary=bare.fingerprint)
    with pytest.raises(ValueError, match="tokenizer: got only special tokens"):
        PretrainingBatches(unknown, bare, 4)
    with pytest.raises(ValueError, match="step: got -1, expected at least 0"):
        batches()(-1)
