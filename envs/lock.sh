#!/usr/bin/env bash
# Writes envs/locks/ anew from constraints.txt, with the hashes of PyPI (needs uv: `pip install uv`).
set -euo pipefail
cd "$(dirname "$0")/.."
lock() { # NAME, then extras and options
  local name="$1"
  shift
  uv pip compile pyproject.toml -q --no-config -c envs/constraints.txt --generate-hashes --no-annotate \
    --default-index https://pypi.org/simple --python-version 3.11.9 --python-platform x86_64-manylinux_2_28 \
    --custom-compile-command "envs/lock.sh" -o "envs/locks/$name.txt" "$@"
}
without=() # what a CPU build of torch brings by itself, or does without
for name in torch torchvision triton $(grep -oE '^(nvidia|cuda)-[a-z0-9-]+' envs/constraints.txt); do
  without+=(--no-emit-package "$name")
done
lock cpu --extra cpu --extra slurm --extra crate "${without[@]}"
lock gpu --extra gpu --extra slurm --extra crate
lock dev --extra cpu --extra slurm --extra crate --extra dev --extra docs "${without[@]}"
