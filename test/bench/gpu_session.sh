#!/usr/bin/env bash
# What scripts/test --gpu and scripts/bench gpu do, for a machine that has a GPU for some minutes only, and no network: nothing is
# set up or built here, each part has a time-out, and a part that fails does not stop the ones after it.
#   test/bench/gpu_session.sh FOLDER [PART...]   FOLDER gets the output of each part, and summary.txt
#   parts, in this order: worker groups kills rates recovery save python
# Before it, where there is a network: scripts/setup --cuda --peers, and the release build of sgd-launch, sgd-worker and gpu_groups.
# SGD_BIN_DIR and SGD_PEERS_PYTHON name them elsewhere; SGD_GPU_SESSION_S (780) is the time for all parts: those that have none left
# are named as left out. Ends with 1 where a part has failed or was left out.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"

declare -A seconds=([worker]=240 [groups]=90 [kills]=180 [rates]=180 [recovery]=120 [save]=90 [python]=180)
declare -A repetitions=([groups]=5 [kills]=5 [rates]=1 [recovery]=2 [save]=1)
order="worker groups kills rates recovery save python"

[ $# -gt 0 ] || die "name a folder for the outputs"
mkdir -p "$1" || die "cannot make the folder $1"
folder=$(cd "$1" && pwd)
shift
parts=${*:-$order}
for part in $parts; do
  [ -n "${seconds[$part]:-}" ] || die "no part is named $part: $order"
done
command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null || die "there is no GPU here that nvidia-smi lists: nothing is done"
export SGD_BIN_DIR=${SGD_BIN_DIR:-$root/build/release/bin} SGD_PEERS_PYTHON=${SGD_PEERS_PYTHON:-$peers_python}
for program in sgd-launch sgd-worker gpu_groups; do
  [ -x "$SGD_BIN_DIR/$program" ] || die "$SGD_BIN_DIR/$program is not built"
done

# run PART SECONDS: its output goes to a file of its own.
run() {
  local command
  case $1 in
    worker) command=("$system_python" "$root/test/unit/worker_torch/worker_gpu.py" "$SGD_BIN_DIR/sgd-worker") ;;
    python) command=("$system_python" "$root/test/integration/gpu_python.py") ;;
    *) command=("$system_python" "$root/test/bench/gpu.py" --only "$1" --n "${repetitions[$1]}") ;;
  esac
  timeout --kill-after 10 "$2" "${command[@]}" >"$folder/$1.txt" 2>&1
}

begin=$SECONDS
failed=0
nvidia-smi >"$folder/nvidia-smi.txt" 2>&1
: >"$folder/summary.txt"
for part in $parts; do
  left=$((${SGD_GPU_SESSION_S:-780} - (SECONDS - begin)))
  limit=$((left < ${seconds[$part]} ? left : ${seconds[$part]}))
  status="left out: no time was left"
  if [ "$limit" -gt 20 ]; then
    began=$SECONDS
    run "$part" "$limit"
    code=$?
    case $code in
      0) status="passed" ;;
      124 | 137) status="FAILED: not done after $limit s" ;;
      *) status="FAILED: exit code $code" ;;
    esac
    status="$status, $((SECONDS - began)) s"
  fi
  case $status in passed*) ;; *) failed=1 ;; esac
  printf '%s: %s\n' "$part" "$status" | tee -a "$folder/summary.txt"
  [ ! -f "$folder/$part.txt" ] || tail -n 5 "$folder/$part.txt"
done
exit $failed
