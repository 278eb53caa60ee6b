#!/usr/bin/env bash
# All hosts of a Cloud TPU slice:  TPU=name ZONE=us-central2-b docs/launchers/tpu_pod.sh
set -euo pipefail
tpu=${TPU:?the name of the TPU slice}
zone=${ZONE:?its zone}
# Checkpoints and metrics go to a file system shared by all hosts, or to a bucket that all of them mount.
workdir=${WORKDIR:-/mnt/runs/boxworld}
repository=${REPOSITORY:?the address to clone this repository from}

# Run the same command on every host. `make setup` creates .venv; jax[tpu] installs the TPU runtime. The processes find each
# other automatically: on machines with TPUs, `--distributed=auto` queries the cloud.
gcloud compute tpus tpu-vm ssh "$tpu" --zone="$zone" --worker=all --command="
  set -eu
  [ -d logic-zoo ] || git clone '$repository' logic-zoo
  cd logic-zoo
  make setup
  .venv/bin/python -m pip install --quiet -c constraints.txt 'jax[tpu]'
  .venv/bin/python -m experiments.boxworld --config=paper --workdir='$workdir'
"
