#!/usr/bin/env bash
# Everything that wants a GPU, in ten minutes: tests, then benchmarks. Without a GPU it uses the CPU.
#   benchmarks/on_gpu.sh [OUT]                  where the package is installed; writes OUT/*.log and OUT/rows.jsonl
#   benchmarks/on_gpu.sh --wheels FOLDER        gathers, for Python 3.12, all that a machine without a network needs
#   WHEELS=FOLDER benchmarks/on_gpu.sh [OUT]    there; it must have torch, torchvision, timm, pandas and pyarrow
# QUICK=1: sizes that show that every part runs, and no more.
set -uo pipefail
cd "$(dirname "$0")/.."
python=python3
if [ "${1:-}" = --wheels ]; then
  exec "$python" -m pip download --quiet --no-deps --only-binary=:all: -c envs/constraints.txt --python-version 3.12 \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 \
    --platform manylinux2014_x86_64 --platform any -d "$2" open_clip_torch ftfy regex pydantic pydantic_core \
    annotated-types typing-inspection typer click shellingham rich markdown-it-py mdurl pygments tqdm pyyaml safetensors \
    scikit-learn scipy joblib threadpoolctl faiss-cpu filelock pytest iniconfig pluggy packaging
fi
out="$(mkdir -p "${1:-on_gpu}" && cd "${1:-on_gpu}" && pwd)"
if [ -n "${WHEELS:-}" ]; then
  there="$(mktemp -d)"
  "$python" -m venv --system-site-packages "$there"
  "$there/bin/python" -m pip install --quiet --no-index --no-deps "$WHEELS"/*.whl || exit 1
  python="$there/bin/python"
fi
export PYTHONPATH="$PWD/workflow:$PWD/tests${PYTHONPATH:+:$PYTHONPATH}"
timeout 120 "$python" -m pytest -q -p no:cacheprovider tests/machine/test_device.py ${QUICK:+-k tf32} >"$out/tests.log" 2>&1
tests=$?
tail -1 "$out/tests.log"
"$python" benchmarks/run.py --json --out "$out" --device auto ${QUICK:+--quick} \
  train_step loader kmeans embed probes theory | tee "$out/rows.jsonl"
exit $((tests || PIPESTATUS[0]))
