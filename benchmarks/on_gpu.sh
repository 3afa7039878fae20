#!/usr/bin/env bash
# Everything that wants a GPU, in ten minutes: tests, then benchmarks, then one table of ratios.
#   benchmarks/on_gpu.sh [OUT]                  where the package is installed (without a GPU: on the CPU, at small sizes)
#   WHEELS=FOLDER benchmarks/on_gpu.sh [OUT]    on a machine without a network, which has torch, torchvision, timm, pandas
#                                               and pyarrow; benchmarks/wheels.sh FOLDER gathers the rest beforehand
# Writes OUT/*.log, OUT/rows.jsonl (work, ours, peer, ratio, goal) and OUT/table.txt. A part that fails or takes longer
# than its time is named, and the next one begins. SECONDS_EACH changes what each benchmark may take.
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
export PYTHONPATH="$PWD/workflow:$PWD/tests${PYTHONPATH:+:$PYTHONPATH}" PATH="$(dirname "$(command -v "$python")"):$PATH"
failed=()

part() { # NAME SECONDS COMMAND...
  local name="$1" seconds="$2" began=$SECONDS
  shift 2
  timeout --kill-after=10 "$seconds" "$@" >"$out/$name.log" 2>&1 || failed+=("$name ($?)")
  echo "$name: $((SECONDS - began)) s"
  grep -h '^{"work"' "$out/$name.log" >>"$out/rows.jsonl"
  [ "$name" != versions ] || cat "$out/$name.log"
}

rm -f "$out/rows.jsonl"
each="${SECONDS_EACH:-100}"
part versions 60 "$python" -c 'import platform, torch, timm, open_clip
gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
print(f"{gpu}; Python {platform.python_version()}, torch {torch.__version__}, timm {timm.__version__}, "
      f"open_clip {open_clip.__version__}")'
! command -v nvidia-smi >/dev/null || nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm --format=csv
part tests 240 "$python" -m pytest -q -p no:cacheprovider tests/machine/test_device.py
part train_step "$((2 * each))" "$python" benchmarks/train_step.py --seconds "${TURN_SECONDS:-4}"
part loader "$each" "$python" benchmarks/loader.py
part probes "$each" "$python" benchmarks/probes.py
part embed "$each" "$python" benchmarks/embed.py --images "${IMAGES:-2000}"
"$python" - "$out/rows.jsonl" <<'PY' | tee "$out/table.txt"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
for row in rows:
    goal = row["goal"]
    met = "" if goal is None else "  met" if row["ratio"] >= goal else "  missed"
    print(f"{row['work'][:70]:70} {row['ours']:10.4g} {row['peer']:10.4g} {row['ratio']:7.3f}  {goal}{met}")
PY
[ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}; see $out/*.log" >&2; exit 1; }
