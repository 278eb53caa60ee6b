"""The command that writes: greedy, by beams, sampled; mistakes are one line."""

import json
import os
import subprocess
import sys

import pytest

from experiments.folnet_language.writing import open_writer
from tests.on_devices import ROOT


@pytest.mark.slow
def test_the_command(pairs_run, tmp_path):
    workdir, path = pairs_run[1], tmp_path / "prompts.txt"
    path.write_text("the big cat sees .\nthe old dog likes .\n", encoding="utf-8")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "experiments.folnet_language.write", f"--weights={workdir}"]

    def done(*flags):
        return subprocess.run(
            [*command, *flags], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
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
    for flags, message in (
        ((), "--prompt: got none, expected a text"),
        (("--prompts=none.txt",), "--prompts: got none.txt"),
        (("--prompt=a", "--beams=2", "--temperature=1"), "expected None with num_beams = 2"),
    ):
        failed = done(*flags)
        assert (failed.returncode, failed.stdout) == (1, "")
        assert message in failed.stderr.splitlines()[-1]
