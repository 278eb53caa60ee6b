"""What the pages under docs/ tell people to type works."""

import os
import re
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
