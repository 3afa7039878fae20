#!/usr/bin/env bash
# Installs the package where both recipes of an image have put it: image.sh cpu, or image.sh gpu.
set -euo pipefail
cd "$(dirname "$0")/.."
extra="$1"
export PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1
if [ "$extra" = cpu ]; then # the lock has no torch: PyPI's needs CUDA
  # Only these are from that index: it need not have the pinned versions of what they depend on, and the lock does.
  pip install --no-deps -c envs/constraints.txt --index-url https://download.pytorch.org/whl/cpu torch torchvision
fi
pip install --require-hashes --no-deps -r "envs/locks/$extra.txt"
pip install --no-deps --editable .
pip check
