# Sourced by the scripts that run several benchmarks: parts with a time limit each, then one table of their rows.
# The caller sets `out` and `python`.
failed=()
rm -f "$out/rows.jsonl"
export PYTHONPATH="$PWD/workflow:$PWD/tests${PYTHONPATH:+:$PYTHONPATH}" PATH="$(dirname "$(command -v "$python")"):$PATH"

part() { # NAME SECONDS COMMAND...
  local name="$1" seconds="$2" began=$SECONDS
  shift 2
  timeout --kill-after=10 "$seconds" "$@" >"$out/$name.log" 2>&1 || failed+=("$name ($?)")
  echo "$name: $((SECONDS - began)) s"
  grep -h '^{"work"' "$out/$name.log" >>"$out/rows.jsonl"
  [ "$name" != versions ] || cat "$out/$name.log"
}

versions() {
  part versions 60 "$python" -c 'import platform, torch, timm, open_clip
gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
print(f"{gpu}; Python {platform.python_version()}, torch {torch.__version__}, timm {timm.__version__}, "
      f"open_clip {open_clip.__version__}")'
  ! command -v nvidia-smi >/dev/null || nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm --format=csv
}

table() { # and the end: 1 if a part has failed
  cat "$out/rows.jsonl"
  "$python" - "$out/rows.jsonl" <<'PY' | tee "$out/table.txt"
import json, sys
print(f"{'work':90} {'ours':>10} {'peer':>10} {'ratio':>7}  goal")
for row in map(json.loads, open(sys.argv[1])):
    goal = row["goal"]
    met = "" if goal is None else f"{goal}  met" if row["ratio"] >= goal else f"{goal}  missed"
    print(f"{row['work'][:90]:90} {row['ours']:10.4g} {row['peer']:10.4g} {row['ratio']:7.3f}  {met}")
PY
  [ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}; see $out/*.log" >&2; exit 1; }
}
