"""The launchers under docs/ do what they say, with stand-ins for the commands of a cluster."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
LAUNCHERS = ROOT / "docs" / "launchers"
SRUN = """#!{python}
import os, subprocess, sys
arguments = sys.argv[1:]
while arguments[0].startswith("-"):
    arguments.pop(0)
around = dict(SLURM_NTASKS="2", SLURM_STEP_NODELIST="localhost", SLURM_STEP_NUM_NODES="1")
tasks = [
    subprocess.Popen(arguments, env=dict(os.environ, **around, SLURM_PROCID=str(i), SLURM_LOCALID=str(i)))
    for i in range(2)
]
sys.exit(max(task.wait() for task in tasks))
"""


def command(folder, name, text):
    """A stand-in on the path."""
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)


def launch(script, folder, **variables):
    return subprocess.run(
        ["bash", str(LAUNCHERS / script), *variables.pop("arguments", ())],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_slurm_starts_the_experiment_and_comes_back_when_it_was_stopped(tmp_path):
    command(tmp_path, "srun", '#!/bin/sh\necho "$@ ids=$JAX_LOCAL_DEVICE_IDS"\nexit ${STATUS}\n')
    command(tmp_path, "scontrol", '#!/bin/sh\necho "scontrol $@"\n')
    variables = {"SLURM_JOB_ID": "7", "SLURM_GPUS_ON_NODE": "4", "WORKDIR": "/shared/run"}
    done = launch("slurm.sh", tmp_path, STATUS="0", arguments=["--config.steps=5"], **variables)
    assert done.stdout == (
        "--kill-on-bad-exit=1 .venv/bin/python -m experiments.boxworld "
        "--config=paper --workdir=/shared/run --config.steps=5 ids=0,1,2,3\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    stopped = launch("slurm.sh", tmp_path, STATUS="143", **variables)
    assert stopped.stdout.endswith("scontrol requeue 7\n")
    assert stopped.returncode == 143
    failed = launch("slurm.sh", tmp_path, STATUS="1", **variables)
    assert "requeue" not in failed.stdout
    assert failed.returncode == 1


@pytest.mark.slow
def test_tasks_of_slurm_find_each_other(tmp_path):
    """A real run of two tasks, through JAX's own reading of SLURM's variables."""
    command(tmp_path, "srun", SRUN.format(python=sys.executable))
    done = launch(
        "slurm.sh",
        tmp_path,
        SLURM_JOB_ID=str(os.getpid()),  # JAX makes the port of it
        PYTHON=sys.executable,
        EXPERIMENT="experiments.llrnn",
        CONFIG="quick",
        WORKDIR=str(tmp_path / "run"),
        JAX_PLATFORMS="cpu",
        arguments=[
            "--config.steps=4",
            "--config.log_every=2",
            "--config.baseline.name=none",
            "--config.batch_size=8",
        ],
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["devices"]["processes"] == 2
    assert summary["step"] == 4


def test_kubernetes_starts_as_many_pods_as_the_run_has_processes():
    service, job = yaml.safe_load_all((LAUNCHERS / "kubernetes.yaml").read_text())
    spec = job["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    variables = {one["name"]: one for one in container["env"]}
    assert spec["completionMode"] == "Indexed"
    assert str(spec["completions"]) == str(spec["parallelism"]) == variables["JAX_NUM_PROCESSES"]["value"]
    host, port = variables["JAX_COORDINATOR_ADDRESS"]["value"].split(":")
    assert host == f"{job['metadata']['name']}-0.{pod['subdomain']}"
    assert 0 < int(port) < 65536
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    index = variables["JAX_PROCESS_ID"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert index == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    module = container["command"][-1]
    assert (ROOT / module.replace(".", "/") / "__main__.py").exists()
    (mount,) = container["volumeMounts"]
    assert any(argument.startswith(f"--workdir={mount['mountPath']}/") for argument in container["args"])
    assert mount["name"] == pod["volumes"][0]["name"]


def test_every_host_of_a_tpu_slice_runs_the_same(tmp_path):
    command(tmp_path, "gcloud", '#!/bin/sh\nfor word in "$@"; do echo "[$word]"; done\n')
    done = launch("tpu_pod.sh", tmp_path, TPU="slice", ZONE="a-b", REPOSITORY="https://example.org/zoo.git")
    assert done.returncode == 0, done.stderr
    assert "[--worker=all]" in done.stdout
    remote = done.stdout.partition("[--command=")[2].rstrip("]\n")
    assert subprocess.run(["bash", "-n"], input=remote, text=True, check=False).returncode == 0
    assert "git clone 'https://example.org/zoo.git' logic-zoo" in remote
    assert "--workdir='/mnt/runs/boxworld'" in remote
    missing = launch("tpu_pod.sh", tmp_path, TPU="slice", ZONE="a-b")
    assert "REPOSITORY: the address to clone this repository from" in missing.stderr
