#!/usr/bin/env bash
# Two hosts of a SLURM cluster, a process a host:  sbatch docs/launchers/slurm.sh
#SBATCH --job-name=boxworld
#SBATCH --nodes=2                # hosts
#SBATCH --ntasks-per-node=1      # one process a host; it uses all of its GPUs
#SBATCH --gpus-per-node=8        # GPUs of a host
#SBATCH --time=04:00:00          # after which SLURM ends the job
#SBATCH --signal=TERM@120        # two minutes before that: the run saves its state and ends
#SBATCH --requeue                # and is put back into the queue by the line at the end
#SBATCH --open-mode=append       # the next session's output goes below this one's
set -euo pipefail

# What is run, and where; arguments of this script go on to the experiment. The directory must be on a file system that all hosts share.
experiment=${EXPERIMENT:-experiments.boxworld}
config=${CONFIG:-paper}
workdir=${WORKDIR:-$HOME/runs/boxworld}
python=${PYTHON:-.venv/bin/python}

# SLURM gives each process GPUs by their number on the host; JAX on SLURM would take one of them only. This names all.
if [ -n "${SLURM_GPUS_ON_NODE:-}" ]; then
  export JAX_LOCAL_DEVICE_IDS=$(seq -s, 0 $((SLURM_GPUS_ON_NODE - 1)))
fi

# srun starts the processes; they find each other by SLURM's variables, no address is needed.
# --kill-on-bad-exit: if one ends, SLURM need not wait until JAX notices (half a minute).
status=0
srun --kill-on-bad-exit=1 "$python" -m "$experiment" --config="$config" --workdir="$workdir" "$@" || status=$?

# 143 is a run that was asked to stop and has saved: it goes on where it was when the job is started again.
if [ "$status" -eq 143 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
