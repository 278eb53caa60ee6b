"""Readers of data for the fuzz: questions, documents, windows, tasks."""

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reliability.reader import Reader
from experiments.folnet_pretrain import data as folnet_data
from folnet import tasks
from folnet.pretraining import files as window_files
from folnet.pretraining import records, sources
from folnet.tasks import files, squad
from folnet.tokenization import WordPieceTokenizer
from tp_transformer import mathematics

DOCUMENTS = [
    f"The cat number {n} sees the dog. The dog hears bird {n % 7}. All fish swim." for n in range(30)
]
QUESTIONS = [mathematics.Question(f"What is {n} + {n % 5}?", str(n + n % 5)) for n in range(40)]
MODULE = "arithmetic__add_or_sub"


# ---- mathematics


def _write_questions(folder: Path) -> None:
    for split in ("train-easy", "interpolate"):
        (folder / "data" / split).mkdir(parents=True)
        mathematics.write_questions(folder / "data" / split / f"{MODULE}.txt", QUESTIONS)


def _read_questions(folder: Path) -> Any:
    source = mathematics.open_source(folder / "data")
    return [list(source.questions(split, MODULE)) for split in ("train-easy", "interpolate")]


GENERATOR = mathematics.Generator(train=6, test=2, names=("numbers__place_value",), extrapolation=(), seed=0)


def _generate(folder: Path) -> Any:
    source = mathematics.generate(folder / "set", GENERATOR, processes=1, show=False)
    return list(source.questions("train", "numbers__place_value"))


def _begin_to_generate(folder: Path) -> None:
    """Leaves the folder in the state after a kill between two parts."""
    _generate(folder)
    (folder / "set" / ".parts").mkdir()
    for split in ("train-medium", "interpolate"):
        parts = folder / "set" / ".parts" / split / "numbers__place_value"
        parts.mkdir(parents=True)
        (folder / "set" / split / "numbers__place_value.txt").rename(parts / "00000.txt")
    np.save(folder / "set" / ".parts" / "test_questions.npy", np.zeros(3, np.uint64))


def _prepare_tfds(folder: Path, name: str, rows: list[dict[str, Any]], version: str, config: str) -> None:
    """Prepares a data set with TensorFlow Datasets."""
    import tensorflow_datasets as tfds

    with tfds.core.registered.skip_registration():

        class Made(tfds.core.GeneratorBasedBuilder):
            """A data set of the given rows, with text and integer features."""

            BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=config, version=version)]  # noqa: RUF012
            url_infos = {}  # noqa: RUF012 -- nothing is downloaded

            def _info(self):
                text = tfds.features.Text()
                kinds = {key: text if isinstance(rows[0][key], str) else np.int64 for key in rows[0]}
                return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(kinds))

            def _split_generators(self, dl_manager):
                return {split: self._generate_examples() for split in ("train", "test", "validation")}

            def _generate_examples(self):
                yield from enumerate(rows)

    Made.name = name
    Made(data_dir=folder, config=config, file_format="array_record").download_and_prepare()


def _write_math_tfds(folder: Path) -> None:
    rows = [{"question": question, "answer": answer} for question, answer in QUESTIONS]
    _prepare_tfds(folder, "math_dataset", rows, "1.0.0", MODULE)


# ---- text


def _write_text(folder: Path) -> None:
    (folder / "text.txt").write_text("\n\n".join(DOCUMENTS) + "\n", encoding="utf-8")


def _read_documents(name: str) -> Callable[[Path], Any]:
    return lambda folder: [document.text for document in sources.open_documents(folder / name)]


def _write_articles(folder: Path) -> None:
    rows = [{"title": f"Title {number}", "text": text} for number, text in enumerate(DOCUMENTS)]
    _prepare_tfds(folder, "wikipedia", rows, "1.0.0", "en")


def _prepare_windows(folder: Path) -> Any:
    vocabulary = folder / "vocab.txt"
    if not vocabulary.exists():
        WordPieceTokenizer.train(DOCUMENTS, 90).save(vocabulary)
    with contextlib.chdir(folder):  # the prepared windows record the name of their source
        return folnet_data.prepare(
            folder / "windows",
            sources.open_documents("text.txt"),
            WordPieceTokenizer.load(vocabulary),
            length=16,
            held_out=0.2,
            shard_documents=10,
            processes=1,
            show=False,
        )


def _write_windows(folder: Path) -> None:
    _write_text(folder)
    _prepare_windows(folder)


def _read_windows(folder: Path) -> Any:
    found = []
    for split in window_files.SPLITS:
        windows = window_files.PreparedWindows(folder / "windows", split)
        found += [windows.tokenizer().vocabulary, windows.take(range(len(windows)))]
    return found


def _write_begun_windows(folder: Path) -> None:
    """Leaves the folder in the state after a kill when two of three parts are finished."""
    _write_windows(folder)
    root = folder / "windows"
    made = window_files.Manifest.read(root)
    done = root / ".done"
    done.mkdir()
    for shard in range(2):
        counts = {
            split: next(part for part in made.splits[split] if part["shard"] == shard)
            for split in window_files.SPLITS
        }
        window_files.write_json(done / f"{shard:05d}.json", counts)
    dataclasses.replace(made, splits={}).write(root)


def _windows_again(folder: Path) -> Any:
    _prepare_windows(folder)
    return _read_windows(folder)


# ---- tasks


def _write_tasks(folder: Path) -> None:
    rte = [f"{n}\tThe dog {n} sat.\tIt sat.\t{'entailment' if n % 2 else 'not_entailment'}" for n in range(8)]
    mrpc = [f"{n % 2}\t{n}\t{n + 100}\tHe said {n}.\tHe told {n}." for n in range(8)]
    cola = [f"gj04\t{n % 2}\t\tThe car number {n} is red." for n in range(8)]
    context = "The dog saw a red car in the park ."
    answers = [[{"text": "a red car", "answer_start": 12}], []]
    asked = {"question": "What did the dog see ?"}
    qas = [asked | {"id": f"q{n}", "is_impossible": bool(n % 2), "answers": answers[n % 2]} for n in range(4)]
    squad = {"version": "v2.0", "data": [{"title": "Dog", "paragraphs": [{"context": context, "qas": qas}]}]}
    folio = [
        {"premises": ["A dog is red.", "All red play."], "conclusion": "It is good.", "label": label}
        for label in ("True", "False", "Unknown")
    ]
    header = (
        ",id,story,query,text_query,target,text_target,proof_state,f_comb,task_name,story_edges,edge_types"
    )
    story, query = '"[Jason] sat.\n[Lewis] ran."', "\"('Jason', 'Lewis')\""
    clutrr = [f"{n},i{n},{story},{query},,uncle,[],[],x,task_1.{2 + n % 2},e,t" for n in range(4)]
    msr = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *mrpc]
    contents = {
        "RTE/dev.tsv": "\n".join(["index\tsentence1\tsentence2\tlabel", *rte]) + "\n",
        "CoLA/dev.tsv": "\n".join(cola) + "\n",
        "MRPC/msr_paraphrase_train.txt": "\r\n".join(msr) + "\r\n",
        "MRPC/mrpc_dev_ids.tsv": "2\t102\n4\t104\n",
        "dev-v2.0.json": json.dumps(squad, indent=1),
        "folio-validation.jsonl": "".join(json.dumps(one) + "\n" for one in folio),
        "data_089907f8/1.2,1.3_train.csv": "\n".join([header, *clutrr]) + "\n",
        "answers.json": json.dumps({"q0": "a red car", "q1": ""}),
        "RTE.tsv": "index\tprediction\n0\tentailment\n1\tnot_entailment\n",
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content.encode("utf-8"))


def _examples(name: str, split: str = "validation") -> Callable[[Path], Any]:
    return lambda folder: [
        one._asdict() if hasattr(one, "_asdict") else one
        for one in tasks.open_task(name).examples(folder, split)
    ]


def _write_glue_tfds(folder: Path) -> None:
    rows = [{"idx": n, "label": n % 2, "sentence1": f"A dog {n}.", "sentence2": "It sat."} for n in range(8)]
    _prepare_tfds(folder, "glue", rows, "2.0.0", "rte")


_TFDS = ["**/*.json", "**/*array_record*"]
_GENERATED: dict[str, Any] = {"read": _generate, "whole": lambda folder: None}
_tasks = functools.partial(Reader, make=_write_tasks)

READERS: tuple[Reader, ...] = (
    Reader(
        "questions in text files",
        "tp_transformer.mathematics.text",
        _write_questions,
        ["data/*/*"],
        _read_questions,
    ),
    Reader(
        "a generated set, started again",
        "tp_transformer.mathematics.generation",
        _generate,
        ["set/*.json", "set/*/*.txt"],
        writes=["set/**/*", "set/.lock"],
        **_GENERATED,
    ),
    Reader(
        "a half-generated set, continued",
        "tp_transformer.mathematics.generation",
        _begin_to_generate,
        ["set/*.json", "set/.parts/*", "set/.parts/*/*/*"],
        writes=["set/**/*", "set/.lock", "set/.parts/**/*"],
        **_GENERATED,
    ),
    Reader(
        "questions prepared by TFDS",
        "tp_transformer.mathematics.tfds",
        _write_math_tfds,
        _TFDS,
        lambda folder: list(mathematics.open_source(folder).questions("interpolate", MODULE)),
    ),
    Reader("text", "folnet.pretraining.sources", _write_text, ["*.txt"], _read_documents("text.txt")),
    Reader(
        "array_record of texts",
        "folnet.pretraining.records",
        lambda folder: records.write_records(
            folder / "text.array_record", (text.encode() for text in DOCUMENTS)
        ),
        ["*.array_record"],
        _read_documents("text.array_record"),
        checked=True,
    ),
    Reader(
        "articles prepared by TFDS",
        "folnet.pretraining.tfds",
        _write_articles,
        _TFDS,
        _read_documents("wikipedia/en/1.0.0"),
    ),
    Reader("prepared windows", "folnet.pretraining.files", _write_windows, ["windows/*"], _read_windows),
    Reader(
        "half-prepared windows, continued",
        "experiments.folnet_pretrain.data",
        _write_begun_windows,
        ["windows/*.json", "windows/*.txt", "windows/.done/*"],
        _windows_again,
        writes=["windows/**/*", "windows/.done/*", "windows/.lock"],
        whole=lambda folder: None,
    ),
    _tasks("GLUE, RTE", "folnet.tasks.glue", damaged=["RTE/*"], read=_examples("rte")),
    _tasks("GLUE, CoLA", "folnet.tasks.glue", damaged=["CoLA/*"], read=_examples("cola")),
    _tasks("GLUE, MRPC", "folnet.tasks.glue", damaged=["MRPC/*"], read=_examples("mrpc")),
    Reader("GLUE prepared by TFDS", "folnet.tasks.tfds", _write_glue_tfds, _TFDS, _examples("rte")),
    _tasks("SQuAD", "folnet.tasks.squad", damaged=["dev-v2.0.json"], read=_examples("squad2")),
    _tasks("FOLIO", "folnet.tasks.folio", damaged=["folio*"], read=_examples("folio")),
    _tasks("CLUTRR", "folnet.tasks.clutrr", damaged=["data_*/*"], read=_examples("clutrr23", "train")),
    _tasks(
        "predictions",
        "folnet.tasks.files",
        damaged=["RTE.tsv", "answers.json"],
        read=lambda folder: (
            files.read_predictions(folder / "RTE.tsv"),
            squad.read_predictions(folder / "answers.json"),
        ),
    ),
)
