#!/usr/bin/env bash
# Gathers what benchmarks/on_gpu.sh needs beside torch, torchvision, timm, pandas and pyarrow, as wheels for another machine.
#   benchmarks/wheels.sh FOLDER [PYTHON_VERSION]      by default 3.12
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(open_clip_torch ftfy regex pydantic pydantic_core annotated-types typing-inspection typer click
  shellingham rich markdown-it-py mdurl pygments tqdm pyyaml safetensors
  scikit-learn scipy joblib threadpoolctl pytest iniconfig pluggy packaging)
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: -c envs/constraints.txt \
  --python-version "${2:-3.12}" --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
  --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform any -d "$1" "${packages[@]}"
du -sh "$1"
