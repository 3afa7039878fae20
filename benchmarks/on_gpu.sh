#!/usr/bin/env bash
# Everything that wants a GPU, in ten minutes: tests, then benchmarks, then one table of ratios.
#   benchmarks/on_gpu.sh [OUT]                  where the package is installed (without a GPU: on the CPU, at small sizes)
#   WHEELS=FOLDER benchmarks/on_gpu.sh [OUT]    on a machine without a network, which has torch, torchvision, timm, pandas
#                                               and pyarrow; benchmarks/wheels.sh FOLDER gathers the rest beforehand
# Writes OUT/*.log, OUT/rows.jsonl (work, ours, peer, ratio, goal) and OUT/table.txt. A part that fails or takes longer
# than its time is named, and the next one begins. QUICK=1: sizes that show that every part runs, and no more.
set -uo pipefail
cd "$(dirname "$0")/.."
out="$(mkdir -p "${1:-on_gpu}" && cd "${1:-on_gpu}" && pwd)"
python=python3
if [ -n "${WHEELS:-}" ]; then
  there="$(mktemp -d)"
  python3 -m venv --system-site-packages "$there"
  "$there/bin/python" -m pip install --quiet --no-index --no-deps "$WHEELS"/*.whl || exit 1
  python="$there/bin/python"
fi
. benchmarks/parts.sh

if [ -n "${QUICK:-}" ]; then
  export OMP_NUM_THREADS=1  # on a busy machine, threads wait for each other
  tests="-k tf32" train_step="--seconds 0 --rows 1 --turns 1" stacks="--sizes 2" loader=70 kmeans="--quick --parts groups"
  embed="--images 64 --turns 1" probes="--images 300 --turns 1 --classes 2 10 --penalties 0.1" theory="neural_collapse --groups 1"
else
  tests="" train_step="--seconds 3" stacks="--sizes 12 36 64" loader=200 kmeans="--parts gpu"
  embed="--images 2000 --turns 1" probes="" theory="--groups 1"
fi

# The words of a part are apart on purpose.
# shellcheck disable=SC2086
{
  versions
  part tests 120 "$python" -m pytest -q -p no:cacheprovider tests/machine/test_device.py $tests
  part train_step 130 "$python" benchmarks/train_step.py $train_step
  part stacks 45 "$python" benchmarks/stacks.py $stacks
  part loader 60 "$python" benchmarks/loader.py $loader
  part kmeans 70 "$python" benchmarks/kmeans.py $kmeans
  part embed 60 "$python" benchmarks/embed.py $embed
  part probes 70 "$python" benchmarks/probes.py $probes
  part theory 45 "$python" benchmarks/theory.py $theory
}
table
