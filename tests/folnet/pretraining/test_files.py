"""Windows on disk: they can be read back, and damage is detected."""

import dataclasses
import json
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from folnet.pretraining.batches import PretrainingBatches
from folnet.pretraining.files import (
    MANIFEST,
    SPLITS,
    VOCABULARY,
    Manifest,
    PreparedWindows,
    SplitName,
    decode,
    encode,
    shard_path,
    write_windows,
)
from folnet.pretraining.records import write_records
from folnet.pretraining.windows import Window
from folnet.tokenization import WordPieceTokenizer
from tests.folnet.small_text import LENGTHS, corpus, split

LENGTH = 32


@pytest.fixture
def prepared(tmp_path):
    """Makes a directory like the program's: training windows in two files, split between documents."""
    parts = dict(zip(SPLITS, split(LENGTH, held_out=0.4), strict=True))
    tokenizer = corpus()[1]
    made = {}
    for name, windows in parts.items():
        every = windows.take(range(len(windows)))
        border = next(i for i, window in enumerate(every) if i > len(every) / 2 and window.place == 0)
        pieces = (every[:border], every[border:])
        made[name] = [
            {"shard": shard, **write_windows(shard_path(tmp_path, name, shard), piece)}
            for shard, piece in enumerate(pieces)
        ]
    tokenizer.save(tmp_path / VOCABULARY)
    manifest = Manifest(
        source="a test",
        documents=len(LENGTHS),
        shard_documents=5,
        vocabulary=tokenizer.fingerprint,
        lowercase=True,
        length=LENGTH,
        packing="document",
        short_fraction=0.0,
        held_out=0.4,
        seed=0,
        splits=made,
    )
    manifest.write(tmp_path)
    return tmp_path


def same(first, second):
    return (
        np.array_equal(first.tokens, second.tokens)
        and np.array_equal(first.starts, second.starts)
        and first[2:] == second[2:]
    )


def test_records_are_windows():
    """With the smallest and largest ids and numbers."""
    for window in (
        Window(np.asarray([0, 65535], np.uint16), np.asarray([], np.uint16), 0, 0),
        Window(np.arange(125, dtype=np.uint16), np.asarray([0, 124], np.uint16), 2**32 - 2, 2**32 - 1),
    ):
        assert same(decode(encode(window), 125), window)


@pytest.mark.parametrize("name", SPLITS)
def test_what_was_written_is_read(prepared, name):
    """In the same order across files, in any order, and in another process."""
    expected = split(LENGTH, held_out=0.4)[SPLITS.index(name)]
    windows = pickle.loads(pickle.dumps(PreparedWindows(prepared, name)))
    assert len(windows) == len(expected)
    assert windows.num_tokens == expected.num_tokens
    assert (windows.room, windows.packing, windows.vocabulary) == (29, "document", expected.vocabulary)
    order = np.random.default_rng(0).permutation(len(windows)).tolist()
    assert all(map(same, windows.take(order), expected.take(order)))


def test_the_manifest_counts_windows_tokens_and_documents(prepared):
    """Of every file; windows across documents belong to none."""
    manifest = Manifest.read(prepared)
    assert manifest.shards == 2
    for name in SPLITS:
        windows = split(LENGTH, held_out=0.4)[SPLITS.index(name)]
        every = windows.take(range(len(windows)))
        parts = manifest.splits[name]
        assert [part["shard"] for part in parts] == [0, 1]
        assert sum(part["windows"] for part in parts) == len(windows)
        assert sum(part["tokens"] for part in parts) == sum(len(window.tokens) for window in every)
        assert sum(part["documents"] for part in parts) == sum(window.place == 0 for window in every)
        assert all(part["documents"] < part["windows"] for part in parts)
    across = [Window(np.arange(2, dtype=np.uint16), np.asarray([], np.uint16), 0, 0)] * 3
    path = prepared / "across.array_record"
    assert write_windows(path, across) == {"windows": 3, "tokens": 6, "documents": 0}


def test_batches_are_those_of_memory(prepared):
    """They are bitwise equal; the tokenizer is that in the directory."""
    windows = PreparedWindows(prepared)
    files = PretrainingBatches(windows, windows.tokenizer(), 16, objective="nsp")
    memory = PretrainingBatches(split(LENGTH, held_out=0.4).train, corpus()[1], 16, objective="nsp")
    for step in (0, 7):
        assert all(map(np.array_equal, files(step), memory(step)))


def test_the_tokenizer_has_the_casing_of_the_text(prepared):
    """As the manifest says; the file of the pieces does not."""
    cased = WordPieceTokenizer(corpus()[1].vocabulary, lowercase=False)
    manifest = dataclasses.replace(Manifest.read(prepared), lowercase=False, vocabulary=cased.fingerprint)
    manifest.write(prepared)
    assert not PreparedWindows(prepared).tokenizer().lowercase


def test_several_threads_read_at_once(prepared):
    """Grain's threads do so."""
    windows = PreparedWindows(prepared)
    rng = np.random.default_rng(0)
    wanted = [rng.integers(0, len(windows), 8).tolist() for _ in range(200)]
    expected = [windows.take(indices) for indices in wanted]
    with ThreadPoolExecutor(8) as pool:
        for found, alone in zip(pool.map(windows.take, wanted), expected, strict=True):
            assert all(map(same, found, alone))


def test_damaged_records():
    """The error says what was expected."""
    record = encode(Window(np.arange(9, dtype=np.uint16), np.asarray([0, 4], np.uint16), 1, 2))
    for data, message in (
        (record[:5], "5 bytes, expected at least 12"),
        (record[:12], "12 bytes, expected 34 for 9 tokens"),
        (record[:-1], "33 bytes, expected 34 for 9 tokens and 2 sentences"),
        (encode(Window(np.arange(9, dtype=np.uint16), np.asarray([], np.uint16), 2, 2)), "window 2 of 2"),
        (encode(Window(np.arange(1, dtype=np.uint16), np.asarray([], np.uint16), 0, 1)), "with 1 tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            decode(data, 9)
    with pytest.raises(ValueError, match="with 9 tokens, expected 2 to 8 tokens"):
        decode(record, 8)


def test_damaged_directories(prepared):
    """Every file that may be missing, damaged or of another kind is named."""
    manifest = Manifest.read(prepared)
    first = shard_path(prepared, "train", 0)
    good = first.read_bytes()
    count = manifest.splits["train"][0]["windows"]

    write_records(first, [b"short"] * count)
    with pytest.raises(ValueError, match=r"train-00000\.array_record, record 3: damaged \(got 5 bytes"):
        PreparedWindows(prepared).take([3])
    write_records(first, [b"short"])
    with pytest.raises(ValueError, match=rf"train-00000\.array_record: got 1 windows, expected {count}"):
        PreparedWindows(prepared)
    first.write_bytes(good[: len(good) // 2])
    with pytest.raises(ValueError, match=r"train-00000\.array_record: not an array_record file, or damaged"):
        PreparedWindows(prepared)
    first.unlink()
    with pytest.raises(ValueError, match=r"train-00000\.array_record: got no such file"):
        PreparedWindows(prepared)
    first.write_bytes(good)

    with pytest.raises(ValueError, match="split: got 'test', expected one of 'train', 'held_out'"):
        PreparedWindows(prepared, "test")  # pyrefly: ignore
    lines = (prepared / VOCABULARY).read_text(encoding="utf-8").splitlines()
    (prepared / VOCABULARY).write_text("\n".join(lines[:-1]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"vocab\.txt: got vocabulary \w+, expected"):
        PreparedWindows(prepared).tokenizer()

    none: dict[SplitName, list[dict[str, int]]] = {
        **manifest.splits,
        "held_out": [{"shard": 0, "windows": 0, "tokens": 0, "documents": 0}],
    }
    dataclasses.replace(manifest, splits=none).write(prepared)
    with pytest.raises(ValueError, match="got no windows of held_out"):
        PreparedWindows(prepared, "held_out")
    dataclasses.replace(manifest, splits={}).write(prepared)
    with pytest.raises(ValueError, match="got an unfinished preparation"):
        PreparedWindows(prepared)
    values = json.loads((prepared / MANIFEST).read_text(encoding="utf-8"))
    for text, message in (
        ("{", "not JSON"),
        (json.dumps({**values, "extra": 1}), "got other fields, expected documents, "),
        ("[]", "got other fields"),
        (json.dumps({**values, "length": "16"}), r"damaged \(TypeError\(\"length: got '16'"),
        (json.dumps({**values, "splits": {"train": [], "held_out": [{}]}}), "damaged \\(KeyError"),
        (json.dumps({**values, "splits": []}), r"damaged \(TypeError\('splits: got \[\], expected an object"),
        (
            json.dumps({**values, "splits": {"train": [{"shard": "0"}], "held_out": []}}),
            r"damaged \(TypeError\(\"shard of train: got '0', expected an integer",
        ),
        (
            json.dumps({**values, "splits": {"train": [{"shard": -1}], "held_out": []}}),
            r"damaged \(ValueError\('shard of train: got -1, expected at least 0",
        ),
    ):
        (prepared / MANIFEST).write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=rf"pretraining\.json: {message}"):
            PreparedWindows(prepared)
    (prepared / MANIFEST).unlink()
    with pytest.raises(ValueError, match=r"directory: got .*pretraining\.json .*, expected prepared windows"):
        PreparedWindows(prepared)
