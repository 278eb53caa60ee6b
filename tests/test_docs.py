"""What the pages under docs/ tell people to type works."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("experiments", "export", "performance", "scaling")
"""Pages whose commands are run here, from the first to the last, in one directory."""


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def blocks(name: str) -> list[tuple[str, str]]:
    """The language and the text of each block that is to be run."""
    return re.findall(r"^```(bash|python)\n(.*?)^```$", page(name), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", PAGES)
def test_commands_have_the_flags_that_they_are_given(name):
    """Each `--flag` of a command stands in its program."""
    texts = [text.replace("\\\n", " ") for language, text in blocks(name) if language == "bash"]
    checked = 0
    for line in "".join(texts).splitlines():
        words = shlex.split(line.strip(), comments=True)
        if ["python", "-m"] not in [words[i : i + 2] for i in range(2)]:  # a variable may stand before it
            continue
        module, *arguments = words[words.index("-m") + 1 :]
        path = ROOT / module.replace(".", "/")
        program = (path / "__main__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8")
        if "runtime.launch(" in program:
            program += (ROOT / "experiments/runtime/launching.py").read_text(encoding="utf-8")
        for word in arguments:
            if word.startswith("--"):
                flag = word.removeprefix("--").split("=")[0]
                flag = "config" if flag.startswith("config.") else flag
                assert f'"{flag}"' in program or f'"--{flag}"' in program, word
                checked += 1
    assert checked > 3


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    targets = [target for target in re.findall(r"\]\(([^)]+)\)", page(name)) if "://" not in target]
    assert [target for target in targets if not (ROOT / "docs" / target).exists()] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_every_command_runs(name, tmp_path):
    for folder in ("results", "experiments"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": paths, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    for language, text in blocks(name):
        command = (
            [sys.executable, "-c", text] if language == "python" else ["bash", "-euo", "pipefail", "-c", text]
        )
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=400
        )
        assert done.returncode == 0, f"{text}\n{done.stderr}"
        assert '"error"' not in done.stdout, done.stdout
    if name == "export":
        with np.load(tmp_path / "answers.npz") as answers:
            assert answers["logits"].shape == (1000, 4)
        written = {path.name for path in tmp_path.rglob("*.jaxmodel")}
        assert written == {"agent.jaxmodel", "quick_simplicial.jaxmodel", "pod.jaxmodel"}
