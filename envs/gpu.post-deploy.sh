#!/usr/bin/env bash
# The package itself, from the checkout that Snakemake was started in.
set -euo pipefail
pip install --no-deps --editable .
