#!/usr/bin/env bash
# `make bench`: every benchmark with a goal that needs no GPU, in fifteen minutes on two cores, then one table of ratios.
#   benchmarks/without_gpu.sh [OUT]
# Writes OUT/*.log, OUT/rows.jsonl (work, ours, peer, ratio, goal) and OUT/table.txt.
set -uo pipefail
cd "$(dirname "$0")/.."
out="$(mkdir -p "${1:-bench}" && cd "${1:-bench}" && pwd)"
python=python3
. benchmarks/parts.sh

versions
part first_step 200 "$python" benchmarks/first_step.py --images 2000 --turns 1
part train_step 150 "$python" benchmarks/train_step.py --seconds 8 --device cpu
part stacks 60 "$python" benchmarks/stacks.py --device cpu --sizes 6 12
part lockstep 120 "$python" benchmarks/lockstep.py --images 500 --turns 1
part loader 100 "$python" benchmarks/loader.py 150
part embed 150 "$python" benchmarks/embed.py --images 640
part kmeans 60 "$python" benchmarks/kmeans.py --quick --parts whole groups
part verify 100 "$python" benchmarks/verify.py "$out" --gb 1
part probes 240 env OMP_NUM_THREADS=1 "$python" benchmarks/probes.py --device cpu --images 1000
# Mask reconstruction is left out: a group of its runs takes minutes.
part theory 120 "$python" benchmarks/theory.py --groups 1 --device cpu label_granularity neural_collapse feature_emergence feature_contamination
table
