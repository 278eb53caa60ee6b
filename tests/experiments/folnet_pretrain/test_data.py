"""The program that prepares text, called in this process and from the command line."""

import concurrent.futures
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

from experiments.folnet_pretrain import data
from folnet.pretraining.documents import Document, Documents, Listed, is_held_out
from folnet.pretraining.files import MANIFEST, VOCABULARY, PreparedWindows
from folnet.pretraining.windows import make_windows
from folnet.tokenization import WordPieceTokenizer
from logic_zoo import workers

ROOT = Path(__file__).resolve().parents[3]
TEXTS = [
    (f"document {n}", "\n".join(f"Sentence {i} of text {n} is here." for i in range(3 + n % 7)))
    for n in range(23)
]


class Failing(Documents):
    """Documents of which one cannot be read; counts reads."""

    name = "documents in memory"

    def __init__(self, broken):
        self.broken, self.reads = broken, 0

    def __len__(self):
        return len(TEXTS)

    def _at(self, index):
        self.reads += 1
        if index == self.broken:
            raise ValueError(f"document {index} is damaged")
        return Document(*TEXTS[index])


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.train([text for _, text in TEXTS], 80)


def prepare(directory, documents, tokenizer, **arguments):
    settings: dict[str, Any] = {
        "length": 24,
        "held_out": 0.2,
        "shard_documents": 5,
        "processes": 1,
        "show": False,
    }
    return data.prepare(directory, documents, tokenizer, **{**settings, **arguments})


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != ".lock"}


def run(*flags):
    return subprocess.run(
        [sys.executable, "-m", "experiments.folnet_pretrain.data", *flags],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_windows_of_all_documents(tmp_path, tokenizer):
    """Each split has its documents' windows in order, whatever the size of a part."""
    made = prepare(tmp_path / "a", Listed(TEXTS), tokenizer)
    assert made.shards == 5
    for split, held_out in (("train", False), ("held_out", True)):
        chosen = [Document(*text) for text in TEXTS if is_held_out(text[1], 0.2) == held_out]
        expected = [window.tokens.tolist() for window in make_windows(chosen, tokenizer, length=24)]
        assert expected
        windows = PreparedWindows(tmp_path / "a", split)
        assert [window.tokens.tolist() for window in windows.take(range(len(windows)))] == expected
        assert windows.num_tokens == sum(map(len, expected))
        assert sum(part["documents"] for part in made.splits[split]) == len(chosen)
    assert PreparedWindows(tmp_path / "a").tokenizer().vocabulary == tokenizer.vocabulary
    whole = prepare(tmp_path / "b", Listed(TEXTS), tokenizer, shard_documents=100)
    assert whole.shards == 1
    windows = [PreparedWindows(tmp_path / name) for name in "ab"]
    tokens = [[window.tokens.tolist() for window in some.take(range(len(some)))] for some in windows]
    assert tokens[0] == tokens[1]


def test_an_interrupted_preparation_continues(tmp_path, tokenizer):
    """Finished parts are not made again, and the result equals an uninterrupted run's."""
    prepare(tmp_path / "whole", Listed(TEXTS), tokenizer)
    broken = Failing(12)
    with pytest.raises(ValueError, match="document 12 is damaged"):
        prepare(tmp_path / "parts", broken, tokenizer)
    assert len(list((tmp_path / "parts" / ".done").iterdir())) == 2
    with pytest.raises(ValueError, match="got an unfinished preparation"):
        PreparedWindows(tmp_path / "parts")
    marker = tmp_path / "parts" / ".done" / "00001.json"
    kept = marker.read_bytes()
    for damaged in (
        b"{",
        kept.replace(b'"windows"', b'"window"'),
        kept.replace(b'"shard": 1', b'"shard": 2'),
        kept.replace(b'"shard": 1', b'"shard": 2', 1),
    ):
        marker.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"00001\.json: damaged; remove it and run again"):
            prepare(tmp_path / "parts", Listed(TEXTS), tokenizer)
    marker.write_bytes(kept)
    for folder in (marker.parent, marker.parents[1]):
        (folder / ".00002.1.tmp").write_bytes(b"half a file")  # of a killed process
    mended = Failing(None)
    prepare(tmp_path / "parts", mended, tokenizer)
    assert mended.reads == 2 * 13  # the three parts that were missing, once for each side
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    again = Failing(None)
    prepare(tmp_path / "parts", again, tokenizer)
    assert again.reads == 0
    prepare(tmp_path / "none", again, tokenizer, held_out=0.0)
    assert again.reads == 23  # once, since there is no other side


def test_a_new_vocabulary_is_of_documents_that_are_not_held_out(tmp_path, tokenizer):
    """Of every n-th document, or that of the file given, or of the preparation begun earlier."""
    values = types.SimpleNamespace(
        vocabulary="", new_vocabulary=80, out=str(tmp_path), lowercase=True, quiet=True,
        vocabulary_documents=23, held_out=0.2,
    )  # fmt: skip

    def learned(step):
        return [text for _, text in TEXTS[::step] if not is_held_out(text, 0.2)]

    for most, step in ((23, 1), (8, 2), (1000, 1)):
        values.vocabulary_documents = most
        assert 0 < len(learned(step)) < len(TEXTS[::step])
        wanted = WordPieceTokenizer.train(learned(step), 80)
        assert data._tokenizer(values, Listed(TEXTS)).fingerprint == wanted.fingerprint
    values.lowercase = False
    wanted = WordPieceTokenizer.train(learned(1), 80, lowercase=False)
    assert data._tokenizer(values, Listed(TEXTS)).fingerprint == wanted.fingerprint
    tokenizer.save(tmp_path / "other.txt")
    values.vocabulary = str(tmp_path / "other.txt")
    with pytest.raises(ValueError, match="got both --vocabulary and --new_vocabulary, expected one of them"):
        data._tokenizer(values, Listed(TEXTS))
    values.new_vocabulary, values.lowercase = 0, True
    assert data._tokenizer(values, Listed(TEXTS)).fingerprint == tokenizer.fingerprint
    values.lowercase = False
    assert data._tokenizer(values, Listed(TEXTS)).fingerprint != tokenizer.fingerprint
    values.vocabulary, values.lowercase = "", True
    with pytest.raises(ValueError, match="got neither --vocabulary nor --new_vocabulary, expected one of"):
        data._tokenizer(values, Listed(TEXTS))
    (tmp_path / "other.txt").rename(tmp_path / VOCABULARY)
    for values.lowercase in (True, False):
        found = data._tokenizer(values, Listed(TEXTS))
        assert (found.vocabulary, found.lowercase) == (tokenizer.vocabulary, values.lowercase)


@pytest.mark.parametrize(("documents", "files"), [(10, 1), (1001, 2), (1_000_000, 256), (6_000_001, 256)])
def test_files_are_few_enough_to_be_open_at_once(monkeypatch, tmp_path, tokenizer, documents, files):
    """There are at most 256 files, and not too small ones; nothing is written here."""

    class Many(Failing):
        def __len__(self):
            return documents

    def stop(job, shards, processes):
        raise RuntimeError(f"{len(shards)} files by {processes} processes")

    monkeypatch.setattr(data, "_make", stop)
    monkeypatch.setattr(data.os, "sched_getaffinity", lambda process: {0, 1, 5})
    with pytest.raises(RuntimeError, match=rf"^{files} files by 3 processes"):
        prepare(tmp_path, Many(None), tokenizer, shard_documents=None, processes=None)


def test_other_settings_need_another_directory(tmp_path, tokenizer):
    """The error lists all differences, and the directory is unchanged."""
    prepare(tmp_path / "a", Listed(TEXTS), tokenizer)
    before = contents(tmp_path / "a")
    with pytest.raises(ValueError, match=r"length is 24, requested 32; .*seed is 0, requested 1"):
        prepare(tmp_path / "a", Listed(TEXTS), tokenizer, length=32, seed=1)
    assert contents(tmp_path / "a") == before
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match=r"b: got thesis\.tex, expected an empty directory"):
        prepare(tmp_path / "b", Listed(TEXTS), tokenizer)
    assert list(contents(tmp_path / "b")) == ["thesis.tex"]
    for name, lines in (("c", tokenizer.vocabulary), ("d", [*tokenizer.vocabulary, "another"])):
        (tmp_path / name).mkdir()
        (tmp_path / name / VOCABULARY).write_text("\n".join([*lines, ""]), encoding="utf-8")
    prepare(tmp_path / "c", Listed(TEXTS), tokenizer)  # the vocabulary may have been put there before
    assert contents(tmp_path / "c") == contents(tmp_path / "a")
    with pytest.raises(ValueError, match=r"d: got vocab\.txt, expected an empty directory"):
        prepare(tmp_path / "d", Listed(TEXTS), tokenizer)


def test_some_parts_may_be_without_text_to_train_on(tmp_path, tokenizer):
    empty = ("empty", "")
    made = prepare(tmp_path / "a", Listed([empty, TEXTS[0]]), tokenizer, shard_documents=1, held_out=0.0)
    assert [part["windows"] > 0 for part in made.splits["train"]] == [False, True]
    with pytest.raises(ValueError, match="documents: got no text in documents in memory to train on"):
        prepare(tmp_path / "b", Listed([empty, empty]), tokenizer, shard_documents=1)


@pytest.mark.parametrize(("processes", "started"), [(2, 2), (5, 5), (9, 5)])
def test_there_are_no_more_processes_than_parts(tmp_path, tokenizer, monkeypatch, processes, started):
    """Their parts are those of one process."""
    pools = []

    @contextlib.contextmanager
    def pool(size, begin, job):
        pools.append(size)
        with concurrent.futures.ThreadPoolExecutor(1, initializer=begin, initargs=(job,)) as executor:
            yield executor

    monkeypatch.setattr(workers, "pool", pool)
    monkeypatch.setitem(data._worker, "job", None)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    prepare(tmp_path / "one", Listed(TEXTS), tokenizer, shard_documents=23, processes=processes)
    assert pools == []
    prepare(tmp_path / "some", Listed(TEXTS), tokenizer, processes=processes)
    prepare(tmp_path / "alone", Listed(TEXTS), tokenizer)
    assert pools == [started]
    assert contents(tmp_path / "some") == contents(tmp_path / "alone")
    with pytest.raises(ValueError, match="document 12 is damaged"):
        prepare(tmp_path / "broken", Failing(12), tokenizer, processes=processes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"processes": 0}, "processes: got 0, expected at least 1"),
        ({"shard_documents": 0}, "shard_documents: got 0, expected at least 1"),
        ({"held_out": 1.0}, "held_out: got 1.0, expected 0 <= held_out < 1"),
        ({"packing": "full"}, "packing.* one of"),
        ({"documents": Listed([])}, "documents: got none in documents in memory"),
    ],
)
def test_bad_arguments_write_nothing(tmp_path, tokenizer, arguments, message):
    with pytest.raises(ValueError, match=message):
        prepare(tmp_path / "x", **{"documents": Listed(TEXTS), "tokenizer": tokenizer, **arguments})
    assert not (tmp_path / "x").exists()


def test_one_at_a_time(tmp_path, tokenizer):
    """Two processes writing to one directory would overwrite each other's files."""
    tmp_path.joinpath("x").mkdir()
    with (
        workers.locked(tmp_path / "x"),
        pytest.raises(RuntimeError, match="another process is writing"),
    ):
        prepare(tmp_path / "x", Listed(TEXTS), tokenizer)


def test_as_a_user_starts_it(tmp_path):
    """Prepares a text file with a new vocabulary."""
    text = "\n\n".join(text for _, text in TEXTS)
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    out = tmp_path / "out"
    flags = (f"--source={tmp_path / 'text.txt'}", f"--out={out}", "--length=24", "--held_out=0.2", "--quiet")
    result = run(*flags, "--new_vocabulary=80", "--processes=1")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    train, held_out = (PreparedWindows(out, split) for split in ("train", "held_out"))
    kept = sum(is_held_out(text, 0.2) for _, text in TEXTS)
    assert result.stdout.splitlines()[1:] == [
        f"  {name}: {len(some)} windows, {some.num_tokens:,} tokens from {documents} documents"
        for name, some, documents in (("train", train, len(TEXTS) - kept), ("held_out", held_out, kept))
    ]
    assert len(train.tokenizer()) <= 80


def test_errors_are_one_line_and_settings_are_passed_on(tmp_path, monkeypatch, capsys):
    """In this process, with the values of flags."""
    (tmp_path / "text.txt").write_text("\n\n".join(text for _, text in TEXTS), encoding="utf-8")
    (tmp_path / "bad.txt").write_bytes(b"fine\n\nnot \xff fine\n")
    values = types.SimpleNamespace(
        source=str(tmp_path / "text.txt"), out=str(tmp_path / "out"), vocabulary=None, new_vocabulary=80,
        vocabulary_documents=100, lowercase=True, split="train", feature="text", blank_lines=None, length=24,
        packing="sentences", short_fraction=0.25, held_out=0.2, seed=7, shard_documents=4, processes=1,
        quiet=True,
    )  # fmt: skip
    monkeypatch.setattr(data.flags, "FLAGS", values)
    opened, plain = [], data.open_documents
    monkeypatch.setattr(data, "open_documents", lambda *of, **kind: opened.append(kind) or plain(*of, **kind))
    data.main()
    assert opened == [{"split": "train", "feature": "text", "blank_lines": None}]
    made = PreparedWindows(tmp_path / "out").manifest
    for name in ("length", "packing", "short_fraction", "held_out", "seed", "shard_documents"):
        assert getattr(made, name) == getattr(values, name)
    assert (made.lowercase, made.documents) == (True, 23)
    assert capsys.readouterr().out == data.summary(values.out, made) + "\n"
    values.out = str(tmp_path / "none")
    for changes, message in (
        ({"source": "nowhere"}, "error: source: got nowhere, which does not exist"),
        ({"source": str(tmp_path / "bad.txt")}, "bad.txt, line 3: not UTF-8"),
        ({"length": 2}, "error: length: got 2, expected 5"),
        ({"new_vocabulary": None}, "error: --vocabulary: got neither --vocabulary nor"),
    ):
        monkeypatch.setattr(data.flags, "FLAGS", types.SimpleNamespace(**vars(values) | changes))
        with pytest.raises(SystemExit) as raised:
            data.main()
        found = capsys.readouterr()
        assert (raised.value.code, found.out, len(found.err.splitlines())) == (2, "", 1)
        assert message in found.err
        assert not (tmp_path / "none" / MANIFEST).exists()


@pytest.mark.slow
def test_errors_are_reported_in_one_line(tmp_path):
    """The exit status is 2, and nothing is written."""
    (tmp_path / "bad.txt").write_bytes(b"fine\n\nnot \xff fine\n")
    (tmp_path / "vocab.txt").write_text("[PAD]\na\n", encoding="utf-8")
    for flags, message in (
        (("--source=nowhere", "--new_vocabulary=50"), "source: got nowhere, which does not exist"),
        ((f"--source={tmp_path / 'bad.txt'}",), "--vocabulary: got neither --vocabulary nor"),
        (
            ("--source=python", f"--vocabulary={tmp_path / 'vocab.txt'}"),
            "[UNK], [CLS], [SEP], [MASK] are missing",
        ),
        ((f"--source={tmp_path / 'bad.txt'}", "--new_vocabulary=50"), "bad.txt, line 3: not UTF-8"),
        (("--source=python", "--new_vocabulary=500", "--length=2"), "length: got 2, expected 5"),
    ):
        result = run(f"--out={tmp_path / 'out'}", "--processes=1", "--quiet", *flags)
        assert result.returncode == 2
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert result.stdout == ""
        assert not (tmp_path / "out" / MANIFEST).exists()


@pytest.mark.slow
def test_all_cores_and_a_sudden_end(tmp_path, tokenizer):
    """Several processes write the same files as one, even if they are killed and started again."""
    documents = [(f"document {n}", TEXTS[n % len(TEXTS)][1] + f"\nNumber {n}." * 200) for n in range(600)]
    text = "\n\n".join(text for _, text in documents)
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    tokenizer.save(tmp_path / VOCABULARY)
    flags = [
        f"--source={tmp_path / 'text.txt'}",
        f"--vocabulary={tmp_path / VOCABULARY}",
        "--length=24",
        "--held_out=0.2",
        "--shard_documents=20",
        "--quiet",
    ]
    assert run(*flags, f"--out={tmp_path / 'one'}", "--processes=1").returncode == 0
    command = [sys.executable, "-m", "experiments.folnet_pretrain.data", *flags, f"--out={tmp_path / 'two'}"]
    started = subprocess.Popen([*command, "--processes=2"], cwd=ROOT, start_new_session=True)
    done = tmp_path / "two" / ".done"
    deadline = time.monotonic() + 120
    while not (done.is_dir() and len(list(done.glob("*.json"))) >= 3):
        assert started.poll() is None, "it finished before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    started.send_signal(signal.SIGKILL)
    started.wait()
    deadline = time.monotonic() + 30
    while _alive(started.pid):  # workers exit without their parent
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not json.loads((tmp_path / "two" / MANIFEST).read_text(encoding="utf-8"))["splits"]
    result = run(*flags, f"--out={tmp_path / 'two'}", "--processes=2")
    assert result.returncode == 0, result.stderr
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def _alive(session):
    """Returns the processes of a session that still exist."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(path)
    return found


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_is_a_bar_in_a_terminal_and_lines_elsewhere(terminal, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    bar = data._progress(2000, 500, show=True)
    bar.close()
    shown = capsys.readouterr().err
    assert ("500 of 2,000 documents" in shown) is not terminal
    assert ("%|" in shown) is terminal
    assert bar.mininterval == (0.1 if terminal else 30.0)
    data._progress(2000, 500, show=False).close()
    assert capsys.readouterr().err == ""
