"""Python in a process of its own, as a user starts it: another folder, packages or interpreter."""

import os
import subprocess
import sys


def run(*arguments, path=(), folder=None, python=sys.executable, seconds=400):
    """Runs Python in a folder, with these folders on its path; returns what it printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [str(python), *map(str, arguments)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
