#!/usr/bin/env bash
# Two hosts of a SLURM cluster, one process per host:  sbatch docs/launchers/slurm.sh
# Before: make setup && .venv/bin/python -m pip install -c constraints.txt 'jax[cuda13]'
#SBATCH --job-name=boxworld
#SBATCH --nodes=2                # number of hosts
#SBATCH --ntasks-per-node=1      # one process per host, which uses all of its GPUs
#SBATCH --gpus-per-node=8        # GPUs per host
#SBATCH --time=04:00:00          # time limit of the job
#SBATCH --signal=TERM@120        # two minutes before the limit, the run saves its state and stops
#SBATCH --requeue                # the last lines of this script put the job back into the queue
#SBATCH --open-mode=append       # append the output of the next session
set -euo pipefail

# Settings. Arguments of this script are passed on to the experiment. The workdir must be on a file system shared by all hosts.
experiment=${EXPERIMENT:-experiments.boxworld}
config=${CONFIG:-paper}
workdir=${WORKDIR:-$HOME/runs/boxworld}
python=${PYTHON:-.venv/bin/python}

# Under SLURM, JAX uses only one GPU per process by default. This selects all GPUs of the host.
if [ -n "${SLURM_GPUS_ON_NODE:-}" ]; then
  export JAX_LOCAL_DEVICE_IDS=$(seq -s, 0 $((SLURM_GPUS_ON_NODE - 1)))
fi

# srun starts the processes, which find each other through SLURM's variables; no address is needed.
# --kill-on-bad-exit: if one process fails, end the others at once; JAX alone would take half a minute to notice.
status=0
srun --kill-on-bad-exit=1 "$python" -m "$experiment" --config="$config" --workdir="$workdir" "$@" || status=$?

# Exit status 143 means that the run was stopped by SIGTERM and has saved its state; the requeued job continues it.
if [ "$status" -eq 143 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
