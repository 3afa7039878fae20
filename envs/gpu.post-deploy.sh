#!/usr/bin/env bash
# The package itself: what the driver runs with (plan/driver.py), a checkout or a commit of the repository.
set -euo pipefail
package="${GRANULARITY_PACKAGE:-.}"
if [ -d "$package" ]; then
  pip install --no-deps --editable "$package"
else
  pip install --no-deps "$package"
fi
