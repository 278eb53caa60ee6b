"""The command that writes: greedy, by beams, sampled; mistakes are one line."""

import json
import os
import subprocess
import sys
import types

import jax
import pytest

from experiments.folnet_language import write
from experiments.folnet_language.write import options_of
from experiments.folnet_language.writing import Written, open_writer
from kernels.decoding import Sampling
from tests.on_devices import ROOT


def flags(**changes):
    """Returns what the command's flags are by default, with some changed."""
    plain = {"beams": 1, "texts": 1, "temperature": 0.0, "top_k": 0, "top_p": 1.0, "seed": 0}
    return types.SimpleNamespace(**(plain | changes))


def test_flags_choose_how_texts_are_written():
    for texts in (2, 4):
        wanted = {"num_beams": 4, "num_return_sequences": texts}, 1
        assert options_of(flags(beams=4, texts=texts)) == wanted
    options, copies = options_of(flags(temperature=0.8, top_k=5, top_p=0.9, texts=3, seed=7))
    assert (options["sampling"], copies) == (Sampling(0.8, 5, 0.9), 3)
    assert (jax.random.key_data(options["key"]) == jax.random.key_data(jax.random.key(7))).all()
    assert options_of(flags(temperature=1.0))[0]["sampling"] == Sampling()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"top_k": 3}, "--temperature: got 0, expected more with --top_k or --top_p"),
        ({"top_p": 0.5}, "--temperature: got 0, expected more with --top_k or --top_p"),
        ({"texts": 3, "beams": 2}, "--texts: got 3, expected at most --beams=2, or a --temperature"),
        ({"temperature": 1.0, "beams": 2}, "--beams: got 2, expected 1 with a --temperature"),
    ],
)
def test_flags_that_have_no_effect_together_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        options_of(flags(**changes))


def test_there_is_a_line_for_each_text(tmp_path, monkeypatch, capsys):
    """In this process: prompts of both flags, as often as they are to be written."""
    (tmp_path / "prompts.txt").write_text("b\u2028\nc\n", encoding="utf-8")
    asked = []

    def written(rows, new_tokens, **options):
        asked.append((rows, new_tokens, options))
        return [[Written(f"é {number}", number > 0, None)] for number, _ in enumerate(rows)]

    monkeypatch.setattr(write, "open_writer", {"run": written}.get)
    given = flags(
        weights="run", prompt=["a"], prompts=str(tmp_path / "prompts.txt"), new_tokens=5, stop=["."],
        temperature=0.5, texts=2,
    )  # fmt: skip
    monkeypatch.setattr(write.flags, "FLAGS", given)
    write.main()
    ((rows, new_tokens, options),) = asked
    assert (rows, new_tokens, options.pop("stop")) == ([*"aa", *["b\u2028"] * 2, *"cc"], 5, ["."])
    assert list(options) == list(options_of(given)[0])
    lines = capsys.readouterr().out.removesuffix("\n").split("\n")
    assert lines[0] == '{"prompt": "a", "text": "é 0", "ended": false}'
    assert [json.loads(line)["prompt"] for line in lines] == rows
    (tmp_path / "prompts.txt").write_text("", encoding="utf-8")
    for given.prompt, given.prompts in (([], ""), ([], str(tmp_path / "prompts.txt"))):
        with pytest.raises(ValueError, match="--prompt: got none, expected a text"):
            write.main()


@pytest.mark.slow
def test_the_command(pairs_run, tmp_path):
    workdir, path = pairs_run[1], tmp_path / "prompts.txt"
    path.write_text("the big cat sees .\nthe old dog likes .\n", encoding="utf-8")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "experiments.folnet_language.write", f"--weights={workdir}"]

    def done(*some):
        return subprocess.run(
            [*command, *some], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )

    lines = [json.loads(line) for line in done(f"--prompts={path}").stdout.splitlines()]
    wanted = open_writer(workdir)(path.read_text(encoding="utf-8").splitlines(), 40)
    assert [line["text"] for line in lines] == [one.text for [one] in wanted]
    assert [line["prompt"] for line in lines] == path.read_text(encoding="utf-8").splitlines()
    beams = done("--prompt=the big cat sees .", "--beams=3", "--texts=2").stdout.splitlines()
    scores = [json.loads(line)["score"] for line in beams]
    assert len(scores) == 2
    assert scores[0] > scores[1]
    sampled = done(f"--prompts={path}", "--temperature=3", "--texts=4", "--seed=1").stdout.splitlines()
    assert [json.loads(line)["prompt"] for line in sampled] == [
        line["prompt"] for line in lines for _ in range(4)
    ]
    assert len({json.loads(line)["text"] for line in sampled}) > 2
    for some, message in (
        ((), "--prompt: got none, expected a text"),
        (("--prompts=none.txt",), "--prompts: got none.txt"),
        (("--prompt=a", "--beams=2", "--temperature=1"), "--beams: got 2, expected 1"),
    ):
        failed = done(*some)
        assert (failed.returncode, failed.stdout) == (2, "")
        assert message in failed.stderr.splitlines()[-1]
