# shellcheck shell=bash disable=SC2034
# Sourced by the scripts of this folder: where things are, how a step is announced and timed.
# Starts and installs nothing.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# What root installs serves other accounts, too: programs built by root find LibTorch there, whoever starts them.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sgd-launch
if [ "$(id -u)" -eq 0 ] && [ -z "${XDG_CACHE_HOME:-}" ] && [ $((0$(stat -c %a "$HOME") & 1)) -eq 0 ]; then
  cache=/var/cache/sgd-launch
fi
export SGD_CACHE=$cache  # For the tests, which look into it.
system_python=/usr/bin/python3
torch_version=$(sed -n 's/^torch==//p' "$root/third_party/python-torch.txt")
torch_dir=${SGD_TORCH_DIR:-$cache/torch-$torch_version/torch}
tests_python=$cache/python/bin/python3
peers_python=$cache/peers/bin/python3
tune_python=$cache/tune/bin/python3
jobs=${SGD_BUILD_JOBS:-$(nproc)}

# A clone at another path, and the precompiled header, still hit the compiler cache.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=true
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime

say() { printf '%s\n' "$*" >&2; }

die() {
  say "$(basename "$0"): error: $*"
  exit 1
}

# step NAME COMMAND...: runs the command and prints its wall time; its exit status is the command's.
step() {
  local name=$1 begin=$EPOCHREALTIME status=0
  shift
  say "== $name"
  "$@" || status=$?
  say "== $name: $(seconds_since "$begin") s$([ $status -eq 0 ] || echo ", failed ($status)")"
  return $status
}

seconds_since() {
  local microseconds=$((${EPOCHREALTIME/[.,]/} - ${1/[.,]/}))
  printf '%d.%d' $((microseconds / 1000000)) $((microseconds / 100000 % 10))
}

# configure PRESET [OPTION...]: anew when the presets or the options are others than those of the folder; ninja
# itself notices changed CMake files.
configure() {
  local preset=$1 folder=$root/build/$1 stamp
  shift
  stamp="$(cat "$root/CMakePresets.json") $*"
  if [ -f "$folder/build.ninja" ] && [ "$(cat "$folder/preset.stamp" 2>/dev/null)" = "$stamp" ]; then return 0; fi
  cmake --fresh -S "$root" --preset "$preset" "$@" >&2 && printf '%s' "$stamp" >"$folder/preset.stamp"
}

build_dev() { configure dev && ninja -C "$root/build/dev" -j "$jobs" "$@" >&2; }
build_release() { configure release "-DSGD_TORCH_DIR=$torch_dir" && ninja -C "$root/build/release" -j "$jobs" "$@" >&2; }
