r"""Prepares text for pretraining FOLNet: turns documents into windows of tokens in array_record files.

    python -m experiments.folnet_pretrain.data --source=tensorflow_datasets/wikipedia/20230601.en/1.0.0 \
        --vocabulary=vocab.txt --out=data/wikipedia
    python -m experiments.folnet_pretrain.data --source=books/ --new_vocabulary=30522 --out=data/books \
        --length=512

The source is `python` (the language reference), a folder prepared by TensorFlow Datasets, array_record
files, or text: a folder of `*.txt` files with one document each, or one file with blank lines between
documents. `--new_vocabulary` learns a vocabulary from the documents that are not held out. All cores are
used. An interrupted command continues where it stopped and produces the same files, for any number of
processes. `folnet.pretraining.PreparedWindows` reads them.
"""

import concurrent.futures
import dataclasses
import json
import os
import sys
from collections.abc import Iterator, Sequence
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
from folnet.pretraining.windows import PACKINGS, Packing, check_packing, make_windows
from folnet.tokenization import WordPieceTokenizer
from logic_zoo import workers

_MOST_FILES, _LEAST_DOCUMENTS = 256, 1000
_DONE = ".done"  # directory with a marker per finished part; removed at the end


def prepare(
    directory: str | os.PathLike[str],
    documents: Documents,
    tokenizer: WordPieceTokenizer,
    *,
    length: int = 128,
    packing: Packing = "document",
    short_fraction: float = 0.0,
    held_out: float = 0.005,
    seed: int = 0,
    shard_documents: int | None = None,
    processes: int | None = None,
    show: bool = True,
) -> Manifest:
    """Writes the windows of documents; see `folnet.pretraining.files` for the layout.

    A script that calls this function needs `if __name__ == "__main__":`, as always with multiprocessing.

    Args:
        directory: created if it does not exist.
        documents: the text.
        tokenizer: turns text into tokens.
        length: tokens per example, T.
        packing: see `folnet.pretraining.Packing`. With "corpus", windows span documents of the same part.
        short_fraction: see `folnet.pretraining.make_windows`.
        held_out: fraction of the documents held out from training.
        seed: determines the short windows.
        shard_documents: documents per part; one process makes a part, which becomes one file per split. The
            default is at least 1000, and enough for at most 256 files, since all are open during reading.
        processes: number of worker processes; all cores by default. With 1, no other process is started.
        show: whether to show progress on standard error.

    Returns:
        The manifest of the directory.

    Raises:
        ValueError: an argument is invalid, a document is damaged, or the directory has other contents.
        RuntimeError: another process is writing to the directory, or a worker was killed.
    """
    check_packing(packing, length, short_fraction, tokenizer.vocab_size)
    processes = workers.cores() if processes is None else processes
    if not len(documents):
        raise ValueError(f"documents: got none in {documents.name}, expected at least 1")
    if shard_documents is None:
        shard_documents = max(_LEAST_DOCUMENTS, -(-len(documents) // _MOST_FILES))
    for name, value in (("processes", processes), ("shard_documents", shard_documents)):
        if value < 1:
            raise ValueError(f"{name}: got {value}, expected at least 1")
    if not 0 <= held_out < 1:
        raise ValueError(f"held_out: got {held_out}, expected 0 <= held_out < 1")
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
    with workers.locked(root):
        begun = _agree(root, wanted, tokenizer)
        if begun.splits:
            return begun
        (root / _DONE).mkdir(exist_ok=True)
        for leftover in [*root.glob(".*.tmp"), *(root / _DONE).glob(".*.tmp")]:  # left by a killed process
            leftover.unlink()
        parts = [_marker(root, shard) for shard in range(wanted.shards)]
        missing = [shard for shard, marker in enumerate(parts) if not marker.is_file()]
        job = _Job(root, documents, tokenizer, wanted)
        already = 0
        for shard, marker in enumerate(parts):
            if marker.is_file():
                _counts(marker)  # report damage before hours of work, not after
                already += len(job.range(shard))
        with _progress(len(documents), already, show) as progress:
            for shard in _make(job, missing, processes):
                progress.update(len(job.range(shard)))
        made = list(map(_counts, parts))
        finished = dataclasses.replace(
            wanted, splits={split: [part[split] for part in made] for split in SPLITS}
        )
        if not any(part["windows"] for part in finished.splits[TRAIN]):
            raise ValueError(f"documents: got no text in {documents.name} to train on, expected some")
        finished.write(root)
        for marker in parts:
            marker.unlink()
        (root / _DONE).rmdir()
    return finished


def _marker(root: Path, shard: int) -> Path:
    return root / _DONE / f"{shard:05d}.json"


def _counts(marker: Path) -> dict[str, dict[str, int]]:
    """Returns the counts of a finished part by split; raises ValueError if its marker is damaged."""
    try:
        made = json.loads(marker.read_text(encoding="utf-8"))
        check_splits({split: [made[split]] for split in SPLITS})
        if set(made) != set(SPLITS) or any(part["shard"] != int(marker.stem) for part in made.values()):
            raise ValueError(f"it does not describe part {int(marker.stem)}")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{marker}: damaged; remove it and run again: {error!r}") from error
    return made


def _agree(root: Path, wanted: Manifest, tokenizer: WordPieceTokenizer) -> Manifest:
    """Writes the manifest and vocabulary, or checks that the directory was started with the same ones."""
    if not (root / MANIFEST).is_file():
        if found := sorted(entry.name for entry in root.iterdir() if not entry.name.startswith(".")):
            others = [name for name in found if name != VOCABULARY]
            if others or WordPieceTokenizer.load(root / VOCABULARY).vocabulary != tokenizer.vocabulary:
                have = ", ".join(found[:5])
                raise ValueError(f"{root}: got {have}, expected an empty directory or prepared windows")
        tokenizer.save(root / VOCABULARY)
        wanted.write(root)
        return wanted
    begun = Manifest.read(root)
    different = [
        f"{name} is {there!r}, requested {asked!r}"
        for (name, there), asked in zip(vars(begun).items(), vars(wanted).values(), strict=True)
        if name != "splits" and there != asked
    ]
    if different:
        listed = "; ".join(different)
        raise ValueError(f"{root}: holds different windows ({listed}); choose another directory")
    return begun


@dataclasses.dataclass(frozen=True)
class _Job:
    """Everything a worker needs to make any part."""

    root: Path
    documents: Documents
    tokenizer: WordPieceTokenizer
    settings: Manifest

    def range(self, shard: int) -> range:
        """Returns the indices of a part's documents."""
        first = shard * self.settings.shard_documents
        return range(first, min(first + self.settings.shard_documents, self.settings.documents))

    def make(self, shard: int) -> int:
        """Writes one part and returns its number: first its files, then the marker of its completion."""
        settings, counts = self.settings, {}
        for split in SPLITS:
            chosen = (
                document
                for document in map(self.documents.__getitem__, self.range(shard))
                if is_held_out(document.text, settings.held_out) == (split == HELD_OUT)
            )
            if split == HELD_OUT and not settings.held_out:
                chosen = ()  # saves a second pass over the documents
            names = ("length", "packing", "short_fraction", "seed")
            fields = {name: getattr(settings, name) for name in names}
            windows = make_windows(chosen, self.tokenizer, **fields)
            counts[split] = {"shard": shard, **write_windows(shard_path(self.root, split, shard), windows)}
        write_json(_marker(self.root, shard), counts)
        return shard


def _make(job: _Job, shards: Sequence[int], processes: int) -> Iterator[int]:
    """Makes parts and yields their numbers in the order of completion."""
    if processes == 1 or len(shards) <= 1:
        yield from map(job.make, shards)
        return
    with workers.pool(min(processes, len(shards)), _begin_worker, job) as pool:
        futures = [pool.submit(_make_part, shard) for shard in shards]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()


_worker: dict[str, _Job] = {}  # the job of this process, if it is a worker


def _begin_worker(job: _Job) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # other workers use the other cores
    _worker["job"] = job


def _make_part(shard: int) -> int:
    return _worker["job"].make(shard)


def _progress(total: int, done: int, show: bool, doing: str = "preparing") -> tqdm:
    """Returns a progress bar for a terminal; elsewhere it prints a line every half minute."""
    look: dict[str, Any] = {"dynamic_ncols": True}
    if not sys.stderr.isatty():
        line = "{desc}: {n:,} of {total:,} documents, {remaining} left\n"
        look = {"mininterval": 30.0, "bar_format": line}
    return tqdm(total=total, initial=done, desc=doing, unit="documents", disable=not show, **look)


def summary(directory: str, made: Manifest) -> str:
    """Returns the vocabulary and length, and a line per split with its windows, tokens and documents."""
    lines = [f"{directory}: vocabulary {made.vocabulary}, T = {made.length}"]
    for split, parts in made.splits.items():
        windows, tokens, documents = (
            sum(part[name] for part in parts) for name in ("windows", "tokens", "documents")
        )
        of = f" from {documents:,} documents" if documents else ""
        lines.append(f"  {split}: {windows:,} windows, {tokens:,} tokens{of}")
    return "\n".join(lines)


def _tokenizer(values: Any, documents: Documents) -> WordPieceTokenizer:
    """Returns the tokenizer of the given vocabulary, of an interrupted earlier run, or of a new one."""
    if values.vocabulary and values.new_vocabulary:
        raise ValueError("--vocabulary: got both --vocabulary and --new_vocabulary, expected one of them")
    begun = Path(values.out).expanduser() / VOCABULARY
    if values.vocabulary:
        return WordPieceTokenizer.from_vocabulary(values.vocabulary, lowercase=values.lowercase)
    if begun.is_file():
        return WordPieceTokenizer.from_vocabulary(begun, lowercase=values.lowercase)
    if not values.new_vocabulary:
        raise ValueError("--vocabulary: got neither --vocabulary nor --new_vocabulary, expected one of them")
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
    """Prepares text as the flags specify; reports an error in one line, with exit status 2."""
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
    flags.DEFINE_string("source", None, "path of the documents, or 'python'", required=True)
    flags.DEFINE_string("out", None, "output directory of the windows", required=True)
    flags.DEFINE_string("vocabulary", None, "vocabulary file, such as BERT's vocab.txt")
    flags.DEFINE_integer("new_vocabulary", None, "learn a vocabulary of this many pieces instead")
    flags.DEFINE_integer(
        "vocabulary_documents", 200_000, "approximate number of documents to learn a new vocabulary from"
    )
    flags.DEFINE_bool("lowercase", True, "lowercase the text, as for FOLNet")
    flags.DEFINE_string("split", "train", "split of a prepared data set")
    flags.DEFINE_string("feature", "text", "text feature of a prepared data set")
    flags.DEFINE_bool(
        "blank_lines", None, "whether blank lines separate documents; by default only in a single file"
    )
    flags.DEFINE_integer("length", 128, "tokens per example, T")
    flags.DEFINE_enum("packing", "document", list(PACKINGS), "how windows are filled")
    flags.DEFINE_float("short_fraction", 0.0, "fraction of windows that are made shorter (BERT: 0.1)")
    flags.DEFINE_float("held_out", 0.005, "fraction of documents held out from training")
    flags.DEFINE_integer("seed", 0, "seed of the short windows")
    flags.DEFINE_integer("shard_documents", None, "documents per file; by default for at most 256 files")
    flags.DEFINE_integer("processes", None, "number of worker processes; all cores by default")
    flags.DEFINE_bool("quiet", False, "do not show progress")
    runtime.run_program(main)
