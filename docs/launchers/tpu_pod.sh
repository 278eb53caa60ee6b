#!/usr/bin/env bash
# All hosts of a Cloud TPU slice:  TPU=name ZONE=us-central2-b docs/launchers/tpu_pod.sh
set -euo pipefail
tpu=${TPU:?the name of the TPU slice}
zone=${ZONE:?its zone}
# A bucket that all hosts mount or, as here, a file system they share; checkpoints and the record go there.
workdir=${WORKDIR:-/mnt/runs/boxworld}
repository=${REPOSITORY:?the address to clone this repository from}

# One command on every host. `make setup` makes .venv; jax[tpu] brings the TPU's runtime. The processes find each other by
# themselves: on a machine with TPUs `--distributed=auto` asks the cloud.
gcloud compute tpus tpu-vm ssh "$tpu" --zone="$zone" --worker=all --command="
  set -eu
  [ -d logic-zoo ] || git clone '$repository' logic-zoo
  cd logic-zoo
  make setup
  .venv/bin/python -m pip install --quiet -c constraints.txt 'jax[tpu]'
  .venv/bin/python -m experiments.boxworld --config=paper --workdir='$workdir'
"
