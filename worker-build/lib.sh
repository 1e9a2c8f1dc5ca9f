# Shared by the scripts of this folder: places, words on the screen, times, locks. Sourced, never run.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
HERE=$ROOT/worker-build
CACHE=${REJOIN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rejoin}
NODE_BIN=$ROOT/node_modules/.bin

WORKER_BUILD_VERSION=0.8.7
MIN_RUST_MINOR=91      # Rust 1.91, which the `worker` crate needs
MIN_NODE='22.12.0'     # which wrangler needs

say() { printf '· %s\n' "$*" >&2; }
fail() { printf '\n✗ %s\n' "$*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

# step NAME COMMAND…: runs it, says how it ended and how long it took; also in the file that REJOIN_STAGES names, where what it runs says nothing.
step() {
  local name=$1 start=$SECONDS code=0 stages=${REJOIN_STAGES:-}
  shift
  printf '▸ %s\n' "$name" >&2
  REJOIN_STAGES=''
  "$@" || code=$?
  REJOIN_STAGES=$stages
  [ -z "$stages" ] || printf '%6d  %s%s\n' "$((SECONDS - start))" "$name" "$([ "$code" -eq 0 ] || echo ' (failed)')" >>"$stages"
  if [ "$code" -ne 0 ]; then
    printf '✗ %s: failed with code %s after %s s\n' "$name" "$code" "$((SECONDS - start))" >&2
    return "$code"
  fi
  printf '✓ %s (%s s)\n' "$name" "$((SECONDS - start))" >&2
}

# within SECONDS COMMAND…: a time limit where the machine can set one.
within() {
  local seconds=$1
  shift
  if has timeout; then timeout "$seconds" "$@"; else "$@"; fi
}

# lock FILE: one at a time, until this process ends.
lock() {
  mkdir -p "$(dirname "$1")"
  has flock || return 0
  exec 9>"$1"
  flock -n 9 && return 0
  say "another build holds $1; waiting for it"
  flock 9
}

# The children must not keep a lock that they inherited.
unlocked() { "$@" 9>&-; }

hash_lines() {
  if has sha256sum; then sha256sum; else shasum -a 256; fi | cut -c1-64
}

# The version of a package as Cargo.lock has it.
locked_version() {
  awk -v want="name = \"$1\"" '$0 == want { getline; gsub(/version = |"/, ""); print; exit }' "$ROOT/Cargo.lock"
}
