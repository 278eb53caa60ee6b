"""Small files in the published formats of the tasks, including their irregularities."""

import json
from pathlib import Path
from typing import Any

from folnet.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

WORDS = """
    a an and are bad book brother car cat correct daughter dog father good grandson great how in incorrect
    is it jason lewis like man maybe my no of on park play red related run sat saw scott she sister story
    terrible the they this to walk was wife yes
"""


def tokenizer(lowercase: bool = True) -> WordPieceTokenizer:
    """Makes a vocabulary of some words, all letters, ASCII punctuation and a few other characters."""
    letters = [chr(code) for code in range(33, 127) if lowercase is False or not chr(code).isupper()]
    letters += ["ß", "中", "文", "’", "—"]
    pieces = [*SPECIAL_TOKENS, *WORDS.split(), *letters, *(f"##{c}" for c in letters if c.isalnum())]
    return WordPieceTokenizer(list(dict.fromkeys(pieces)), lowercase=lowercase)


def write(path: Path, text: str) -> Path:
    """Writes the bytes of a file, creating its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8"))
    return path


def tsv(*rows: str) -> str:
    """Formats rows given with " | " between their columns."""
    return "".join("\t".join(field.strip(" ") for field in row.split("|")) + "\n" for row in rows)


MNLI_HEADER = (
    "index|promptID|pairID|genre|sentence1_binary_parse|sentence2_binary_parse|sentence1_parse|sentence2_parse|"
    "sentence1|sentence2"
)
STSB_HEADER = "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2"
MRPC_HEADER = "Quality|#1 ID|#2 ID|#1 String|#2 String"


def glue(root: Path) -> Path:
    """Writes all eight tasks with all splits."""
    mnli = '{}|1|1n|fiction|( p )|( h )|(ROOT p)|(ROOT h)|The man sat.|A man was on "it".{}'
    write(
        root / "MNLI/train.tsv", tsv(MNLI_HEADER + "|label1|gold_label", mnli.format(0, "|neutral|neutral"))
    )
    for kind in ("matched", "mismatched"):
        labels = "|label1|label2|label3|label4|label5|gold_label"
        dev = [
            mnli.format(0, "|neutral|entailment|entailment|entailment|neutral|entailment"),
            mnli.format(1, "|contradiction" * 6),
        ]
        write(root / f"MNLI/dev_{kind}.tsv", tsv(MNLI_HEADER + labels, *dev))
        write(root / f"MNLI/test_{kind}.tsv", tsv(MNLI_HEADER, mnli.format(0, ""), mnli.format(1, "")))
    qqp = "id|qid1|qid2|question1|question2|is_duplicate"
    write(
        root / "QQP/train.tsv",
        tsv(
            qqp,
            '133273|213221|213222|How is a dog?|How is a "cat|0',
            "7|1|2|Why does this row",
            "end here?|Or there?|1",
            "402555|536040|536041||How was it?|1",
        ),
    )
    write(root / "QQP/dev.tsv", tsv(qqp, "201359|303345|303346|Is it good?|Is it bad?|0"))
    write(root / "QQP/test.tsv", tsv("id|question1|question2", "0|Is it good?|Is it?", "1|Who?|What?"))
    qnli = "index|question|sentence"
    for name in ("train", "dev"):
        rows = ["0|What is it?|It is a dog.|entailment", '1|Who?|She "said|not_entailment']
        write(root / f"QNLI/{name}.tsv", tsv(qnli + "|label", *rows))
    write(root / "QNLI/test.tsv", tsv(qnli, "0|What was it?|It was a cat ."))
    # The last letter of this sentence is followed by a space, as everywhere in SST-2.
    write(root / "SST-2/train.tsv", "sentence\tlabel\na great car \t1\nit was terrible \t0\n")
    write(root / "SST-2/dev.tsv", "sentence\tlabel\nmy good book . \t1\n")
    write(root / "SST-2/test.tsv", "index\tsentence\n0\tthey play . \n1\tit \x85 \u2028 is .\n")
    for name in ("train", "dev"):
        cola = ['gj04|1||"The dog, it sat.', "gj04|0|*|Dog the sat.", "bc01|1||My caf\u00e9 is good."]
        write(root / f"CoLA/{name}.tsv", tsv(*cola))
    write(root / "CoLA/test.tsv", tsv("index|sentence", "0|The sister walked.", "1|Walked sister the."))
    stsb = '{}|main-captions|MSRvid|2012test|0001|none|none|A man is on a car.|A man is in "a car.{}'
    for name in ("train", "dev"):
        rows = [stsb.format(0, "|5.000"), stsb.format(1, "|0.800"), stsb.format(2, "|3.25")]
        write(root / f"STS-B/{name}.tsv", tsv(STSB_HEADER + "|score", *rows))
    write(root / "STS-B/test.tsv", tsv(STSB_HEADER, stsb.format(0, ""), stsb.format(1, "")))
    mrpc = ['1|702876|702977|He "said it.|It was "said.', "0|2108705|2108831|She ran.|They ran."]
    write(root / "MRPC/train.tsv", "\ufeff" + tsv(MRPC_HEADER, *mrpc))
    write(root / "MRPC/dev.tsv", "\ufeff" + tsv(MRPC_HEADER, *mrpc[::-1]))
    test = MRPC_HEADER.replace("Quality", "index")
    write(root / "MRPC/test.tsv", tsv(test, "0|1089874|1089925|A cat.|The cat.", "1|3|4|A dog.|A man."))
    for name in ("train", "dev"):
        rows = ["0|The man sat.|A man sat.|entailment", "1|The man sat.|He ran.|not_entailment"]
        write(root / f"RTE/{name}.tsv", tsv("index|sentence1|sentence2|label", *rows))
    write(
        root / "RTE/test.tsv",
        tsv("index|sentence1|sentence2", "0|A cat sat.|It sat.", "1|He ran.|It is red."),
    )
    return root


CONTEXT = (
    "The café — in Zürich — was open (1998–2003). My SISTER’S   dog sat in the park; 中文 was on the door. "
    "It cost 25$ a day, and they liked it."
)


def answer(text: str) -> dict[str, Any]:
    """Returns a gold answer at the last occurrence of its text."""
    return {"text": text, "answer_start": CONTEXT.rindex(text)}


def squad(impossible: bool = True) -> dict[str, Any]:
    """Returns a SQuAD 2.0 file with several gold answers, none, plausible answers and other alphabets."""
    asked = [
        ("q0", "Where was it?", ["Zürich", "in Zürich", "Zürich"]),
        ("q1", "What sat?", ["SISTER’S   dog", "dog"]),
        ("q2", "What was on the door?", ["中文"]),
        ("q3", "How much?", ["25$"]),
        ("q4", "When?", ["(1998–2003)", "1998"]),
        ("q5", "What began it all?", ["The"]),
        ("q6", "And the last?", ["it."]),
    ]
    qas: list[dict[str, Any]] = [
        {
            "question": question,
            "id": index,
            "answers": [answer(text) for text in texts],
            "is_impossible": False,
        }
        for index, question, texts in asked
    ]
    if impossible:
        plausible = [answer("Zürich")]
        qas.append(
            {
                "question": "Where is the car?",
                "id": "q7",
                "answers": [],
                "plausible_answers": plausible,
                "is_impossible": True,
            }
        )
    short = {
        "context": "A dog sat on a red car.",
        "qas": [
            {
                "question": "What sat?",
                "id": "q8",
                "answers": [{"text": "A dog", "answer_start": 0}],
                "is_impossible": False,
            }
        ],
    }
    return {
        "version": "v2.0",
        "data": [
            {"title": "Café", "paragraphs": [{"context": CONTEXT, "qas": qas}]},
            {"title": "Dog", "paragraphs": [short]},
        ],
    }


def write_squad(root: Path) -> Path:
    """Writes both splits of SQuAD 2.0."""
    for name in ("train", "dev"):
        write(root / f"{name}-v2.0.json", json.dumps(squad(), ensure_ascii=name == "train"))
    return root
