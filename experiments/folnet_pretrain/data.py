r"""Prepares text for pretraining FOLNet: documents to windows of tokens in array_record files.

    python -m experiments.folnet_pretrain.data --source=tensorflow_datasets/wikipedia/20230601.en/1.0.0 \
        --vocabulary=vocab.txt --out=data/wikipedia
    python -m experiments.folnet_pretrain.data --source=books/ --new_vocabulary=30522 --out=data/books \
        --length=512

The source is `python` (the language reference), a folder prepared by TensorFlow Datasets, array_record
files, or text: a folder of files `*.txt` with a document each, or one file with blank lines between
documents. `--new_vocabulary` learns one from what is not held out. All cores are used; a command that was
interrupted continues where it was and ends with the same files, whatever the number of processes.
`folnet.pretraining.PreparedWindows` reads them.
"""

import concurrent.futures
import dataclasses
import fcntl
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from absl import flags
from tqdm import tqdm

from experiments import runtime
from folnet.pretraining.documents import Documents, is_held_out
from folnet.pretraining.files import (
    HELD_OUT,
    MANIFEST,
    SPLITS,
    TRAIN,
    VOCABULARY,
    Manifest,
    check_splits,
    shard_path,
    write_json,
    write_windows,
)
from folnet.pretraining.sources import open_documents
from folnet.pretraining.windows import check_packing, make_windows
from folnet.tokenization import WordPieceTokenizer

_MOST_FILES, _LEAST_DOCUMENTS = 256, 1000
_DONE = ".done"  # what each finished part has; gone at the end


def prepare(
    directory: str | os.PathLike[str],
    documents: Documents,
    tokenizer: WordPieceTokenizer,
    *,
    length: int = 128,
    packing: str = "document",
    short_fraction: float = 0.0,
    held_out: float = 0.005,
    seed: int = 0,
    shard_documents: int | None = None,
    processes: int | None = None,
    show: bool = True,
) -> Manifest:
    """Writes the windows of documents; see `folnet.pretraining.files` for the layout.

    A script that calls it needs `if __name__ == "__main__":`, as all of Python's multiprocessing does.

    Args:
        directory: made if it does not exist.
        documents: the text.
        tokenizer: makes tokens of it.
        length: tokens of an example, T.
        packing: see `folnet.pretraining.PACKINGS`. With `corpus` documents continue within a part.
        short_fraction: see `folnet.pretraining.make_windows`.
        held_out: fraction of the documents kept from training.
        seed: of the short windows.
        shard_documents: documents of a part, which one process makes and which becomes a file; by default at
            least 1000, and enough for at most 256 files, since all are open while they are read.
        processes: how many work; all cores by default. With 1 this process does it itself.
        show: show progress on standard error.

    Raises:
        ValueError: an argument is wrong, a document is damaged, or the directory holds something else.
        RuntimeError: another process is writing there, or one of ours was killed.
    """
    check_packing(packing, length, short_fraction, tokenizer.vocab_size)
    processes = len(os.sched_getaffinity(0)) if processes is None else processes
    if not len(documents):
        raise ValueError(f"documents must not be empty, {documents.name} has none")
    if shard_documents is None:
        shard_documents = max(_LEAST_DOCUMENTS, -(-len(documents) // _MOST_FILES))
    for name, value in (("processes", processes), ("shard_documents", shard_documents)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if not 0 <= held_out < 1:
        raise ValueError(f"held_out must be a fraction in 0 .. 1, got {held_out}")
    wanted = Manifest(
        source=documents.name,
        documents=len(documents),
        shard_documents=shard_documents,
        vocabulary=tokenizer.fingerprint,
        lowercase=tokenizer.lowercase,
        length=length,
        packing=packing,
        short_fraction=short_fraction,
        held_out=held_out,
        seed=seed,
    )
    root = Path(directory).expanduser()
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root):
        begun = _agree(root, wanted, tokenizer)
        if begun.splits:
            return begun
        (root / _DONE).mkdir(exist_ok=True)
        for leftover in [*root.glob(".*.tmp"), *(root / _DONE).glob(".*.tmp")]:  # of what was killed
            leftover.unlink()
        parts = [_marker(root, shard) for shard in range(wanted.shards)]
        missing = [shard for shard, marker in enumerate(parts) if not marker.is_file()]
        job = _Job(root, documents, tokenizer, wanted)
        already = 0
        for shard, marker in enumerate(parts):
            if marker.is_file():
                _counts(marker)  # damage is reported before hours of work, not after them
                already += len(job.range(shard))
        with _progress(len(documents), already, show) as progress:
            for shard in _make(job, missing, processes):
                progress.update(len(job.range(shard)))
        made = list(map(_counts, parts))
        splits = {split: [part[split] for part in made] for split in SPLITS}
        finished = dataclasses.replace(wanted, splits=splits)
        if not any(part["windows"] for part in finished.splits[TRAIN]):
            raise ValueError(f"documents must have some text to train on, {documents.name} has none")
        finished.write(root)
        for marker in parts:
            marker.unlink()
        (root / _DONE).rmdir()
    return finished


def _marker(root: Path, shard: int) -> Path:
    return root / _DONE / f"{shard:05d}.json"


def _counts(marker: Path) -> dict[str, dict[str, int]]:
    """What a finished part has; ValueError if its marker is damaged."""
    try:
        made = json.loads(marker.read_text(encoding="utf-8"))
        check_splits({split: [made[split]] for split in SPLITS})
        if set(made) != set(SPLITS) or any(part["shard"] != int(marker.stem) for part in made.values()):
            raise ValueError(f"it is not that of part {int(marker.stem)}")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{marker} is damaged; remove it and start again: {error!r}") from error
    return made


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Keeps other processes from writing into the directory; ends with this process, however that ends."""
    with open(root / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RuntimeError(f"another process is preparing into {root}") from error
        yield


def _agree(root: Path, wanted: Manifest, tokenizer: WordPieceTokenizer) -> Manifest:
    """Writes down what is being made, or checks that it is what was begun before."""
    if not (root / MANIFEST).is_file():
        if found := sorted(entry.name for entry in root.iterdir() if not entry.name.startswith(".")):
            others = [name for name in found if name != VOCABULARY]
            if others or WordPieceTokenizer.load(root / VOCABULARY).vocabulary != tokenizer.vocabulary:
                have = ", ".join(found[:5])
                raise ValueError(f"directory must be empty or hold prepared windows, {root} has {have}")
        tokenizer.save(root / VOCABULARY)
        wanted.write(root)
        return wanted
    begun = Manifest.read(root)
    different = [
        f"{name}: {there!r} there, {asked!r} asked for"
        for (name, there), asked in zip(vars(begun).items(), vars(wanted).values(), strict=True)
        if name != "splits" and there != asked
    ]
    if different:
        listed = "; ".join(different)
        raise ValueError(f"directory {root} holds other windows ({listed}); choose another directory")
    return begun


@dataclasses.dataclass(frozen=True)
class _Job:
    """All that a process needs to make any part."""

    root: Path
    documents: Documents
    tokenizer: WordPieceTokenizer
    settings: Manifest

    def range(self, shard: int) -> range:
        """The documents of a part."""
        first = shard * self.settings.shard_documents
        return range(first, min(first + self.settings.shard_documents, self.settings.documents))

    def make(self, shard: int) -> int:
        """Writes one part: its files first, then the marker that says they are there."""
        settings, counts = self.settings, {}
        for split in SPLITS:
            chosen = (
                document
                for document in map(self.documents.__getitem__, self.range(shard))
                if is_held_out(document.text, settings.held_out) == (split == HELD_OUT)
            )
            if split == HELD_OUT and not settings.held_out:
                chosen = ()  # without reading it all again
            names = ("length", "packing", "short_fraction", "seed")
            fields = {name: getattr(settings, name) for name in names}
            windows = make_windows(chosen, self.tokenizer, **fields)
            counts[split] = {"shard": shard, **write_windows(shard_path(self.root, split, shard), windows)}
        write_json(_marker(self.root, shard), counts)
        return shard


def _make(job: _Job, shards: Sequence[int], processes: int) -> Iterator[int]:
    """Makes parts, in whatever order they are finished."""
    if processes == 1 or len(shards) <= 1:
        yield from map(job.make, shards)
        return
    # Spawned, not forked: the tokenizer and the readers have threads, and a fork may hang in one of their
    # locks.
    context = multiprocessing.get_context("spawn")
    # Nobody writes to this pipe. It ends for the workers when its other end is closed, by us or by our death.
    ending, alive = context.Pipe(duplex=False)
    processes = min(processes, len(shards))
    pool = concurrent.futures.ProcessPoolExecutor(processes, context, _begin_worker, (job, ending))
    with ending, alive:
        try:
            futures = [pool.submit(_make_part, shard) for shard in shards]
            for future in concurrent.futures.as_completed(futures):
                yield future.result()
        except BrokenProcessPool as error:
            raise RuntimeError(
                "a process was killed (out of memory?); start again, what is done is kept"
            ) from error
        except BaseException:
            alive.close()  # a part is too long to wait for
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        pool.shutdown()


_worker: dict[str, _Job] = {}  # what this process works at, if it is a worker


def _begin_worker(job: _Job, ending: Connection) -> None:
    """Makes a worker end when its parent says so or is gone; Ctrl-C is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the other cores have work of their own
    _worker["job"] = job

    def watch() -> None:
        ending.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _make_part(shard: int) -> int:
    return _worker["job"].make(shard)


def _progress(total: int, done: int, show: bool, doing: str = "preparing") -> tqdm:
    """A bar on a terminal, a line every half minute elsewhere."""
    look: dict[str, Any] = {"dynamic_ncols": True}
    if not sys.stderr.isatty():
        line = "{desc}: {n:,} of {total:,} documents, {remaining} left\n"
        look = {"mininterval": 30.0, "bar_format": line}
    return tqdm(total=total, initial=done, desc=doing, unit="documents", disable=not show, **look)


def summary(directory: str, made: Manifest) -> str:
    """A line a split: how many windows, tokens and documents."""
    lines = [f"{directory}: vocabulary {made.vocabulary}, T = {made.length}"]
    for split, parts in made.splits.items():
        windows, tokens, documents = (
            sum(part[name] for part in parts) for name in ("windows", "tokens", "documents")
        )
        of = f" of {documents:,} documents" if documents else ""
        lines.append(f"  {split}: {windows:,} windows, {tokens:,} tokens{of}")
    return "\n".join(lines)


def _tokenizer(values: Any, documents: Documents) -> WordPieceTokenizer:
    """The vocabulary that was named, the one of an earlier start, or a new one."""
    if values.vocabulary and values.new_vocabulary:
        raise ValueError("vocabulary and new_vocabulary cannot both be given")
    begun = Path(values.out).expanduser() / VOCABULARY
    if values.vocabulary:
        return WordPieceTokenizer.from_vocabulary(values.vocabulary, lowercase=values.lowercase)
    if begun.is_file():
        return WordPieceTokenizer.from_vocabulary(begun, lowercase=values.lowercase)
    if not values.new_vocabulary:
        raise ValueError("vocabulary must be a file, or new_vocabulary a number of pieces; got neither")
    step = max(1, len(documents) // values.vocabulary_documents)
    chosen = range(0, len(documents), step)

    def texts(progress: tqdm) -> Iterator[str]:
        for document in map(documents.__getitem__, chosen):
            if not is_held_out(document.text, values.held_out):
                yield document.text
            progress.update()

    with _progress(len(chosen), 0, not values.quiet, "reading for the vocabulary") as progress:
        return WordPieceTokenizer.train(texts(progress), values.new_vocabulary, lowercase=values.lowercase)


def main() -> None:
    """Prepares text as the flags say; a mistake is reported in one line, with exit status 2."""
    values = flags.FLAGS
    try:
        check_packing(values.packing, values.length, values.short_fraction, 0)
        documents = open_documents(
            values.source, split=values.split, feature=values.feature, blank_lines=values.blank_lines
        )
        names = ("length", "packing", "short_fraction", "held_out", "seed", "shard_documents", "processes")
        settings = {name: getattr(values, name) for name in names}
        tokenizer = _tokenizer(values, documents)
        made = prepare(values.out, documents, tokenizer, show=not values.quiet, **settings)
    except (ValueError, RuntimeError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    print(summary(values.out, made))


if __name__ == "__main__":
    flags.DEFINE_string("source", None, "where the documents are", required=True)
    flags.DEFINE_string("out", None, "directory of the windows", required=True)
    flags.DEFINE_string("vocabulary", None, "a file vocab.txt, such as BERT's")
    flags.DEFINE_integer("new_vocabulary", None, "train a vocabulary of so many pieces instead")
    flags.DEFINE_integer("vocabulary_documents", 200_000, "documents a new vocabulary is learned from, about")
    flags.DEFINE_bool("lowercase", True, "uncased, as FOLNet is")
    flags.DEFINE_string("split", "train", "of a prepared data set")
    flags.DEFINE_string("feature", "text", "of a prepared data set: which is the text")
    flags.DEFINE_bool("blank_lines", None, "blank lines separate documents; by default in one file")
    flags.DEFINE_integer("length", 128, "tokens of an example, T")
    flags.DEFINE_enum("packing", "document", ["document", "sentences", "corpus"], "how windows are filled")
    flags.DEFINE_float("short_fraction", 0.0, "of the windows, made shorter (BERT: 0.1)")
    flags.DEFINE_float("held_out", 0.005, "of the documents, kept from training")
    flags.DEFINE_integer("seed", 0, "of the short windows")
    flags.DEFINE_integer("shard_documents", None, "documents of a file; by default for at most 256 files")
    flags.DEFINE_integer("processes", None, "how many work; all cores by default")
    flags.DEFINE_bool("quiet", False, "show no progress")
    runtime.run_program(main)
