#!/usr/bin/env bash
# Everything that wants a GPU, in ten minutes: tests, then benchmarks, then one table of ratios.
#   benchmarks/on_gpu.sh [OUT]                  where the package is installed (without a GPU: on the CPU, at small sizes)
#   WHEELS=FOLDER benchmarks/on_gpu.sh [OUT]    on a machine without a network, which has torch, torchvision, timm, pandas
#                                               and pyarrow; benchmarks/wheels.sh FOLDER gathers the rest beforehand
# Writes OUT/*.log, OUT/rows.jsonl (work, ours, peer, ratio, goal) and OUT/table.txt. A part that fails or takes longer
# than its time is named, and the next one begins.
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

versions
part tests 120 "$python" -m pytest -q -p no:cacheprovider tests/machine/test_device.py
part train_step 130 "$python" benchmarks/train_step.py --seconds 3
part stacks 45 "$python" benchmarks/stacks.py --sizes 12 36 64
part loader 60 "$python" benchmarks/loader.py 200
part kmeans 70 "$python" benchmarks/kmeans.py --parts gpu
part embed 60 "$python" benchmarks/embed.py --images "${IMAGES:-2000}" --turns 1
part probes 70 "$python" benchmarks/probes.py
part theory 45 "$python" benchmarks/theory.py --groups 1
table
