#!/usr/bin/env bash
# Turns src/ into build/ (wrangler's [build] command, too). Does nothing when nothing changed.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$HERE/compiler.sh"

OUT=$ROOT/build
STAMP=$OUT/.stamp
DEP_INFO=$ROOT/target/wasm32-unknown-unknown/release/rejoin.d

# Every file that the bundle is made of: the sources, whatever they include (cargo wrote it down), the pins of the tools, these scripts.
inputs() {
  cd "$ROOT"
  {
    find src worker-build/bin -type f
    printf '%s\n' worker-build/build.sh worker-build/compiler.sh worker-build/lib.sh Cargo.toml Cargo.lock package-lock.json
    [ ! -f "$DEP_INFO" ] || sed -n '1s/^[^:]*: *//p' "$DEP_INFO" | sed 's/\\ /\a/g' | tr ' \a' '\n ' | sed "s|^$ROOT/||" | grep -v '^/' || true
  } | LC_ALL=C sort -u | while IFS= read -r file; do if [ -f "$file" ]; then printf '%s\0' "$file"; fi; done
}

inputs_hash() {
  if has sha256sum; then inputs | xargs -0 sha256sum; else inputs | xargs -0 shasum -a 256; fi | hash_lines
}

fresh() { [ -f "$STAMP" ] && [ -f "$OUT/index.js" ] && [ -f "$OUT/index_bg.wasm" ] && [ "$(cat "$STAMP")" = "$1" ]; }

compile() {
  local bindgen
  bindgen=$(locked_version wasm-bindgen)
  use_compiler
  export WASM_BINDGEN_BIN=$CACHE/tools/wasm-bindgen-$bindgen/bin/wasm-bindgen
  export WASM_OPT_BIN=$NODE_BIN/wasm-opt ESBUILD_BIN=$NODE_BIN/esbuild
  # For `option_env!`: which build this is. It changes only when the sources do.
  export REJOIN_BUILD=${1:0:12}
  rm -f "$STAMP"
  unlocked "$CACHE/tools/worker-build-$WORKER_BUILD_VERSION/bin/worker-build" --release --panic-unwind </dev/null >&2
}

sizes() {
  local raw packed
  raw=$(cat "$OUT/index.js" "$OUT/index_bg.wasm" | wc -c)
  packed=$(cat "$OUT/index.js" "$OUT/index_bg.wasm" | gzip -9 | wc -c)
  say "build/: $((raw / 1000)) kB, gzipped $((packed / 1000)) kB"
}

main() {
  local hash
  hash=$(inputs_hash)
  if fresh "$hash"; then say 'build/ is up to date'; return 0; fi
  lock "$ROOT/target/rejoin-build.lock"
  # Somebody else may have built it while this one waited.
  hash=$(inputs_hash)
  if fresh "$hash"; then say 'build/ is up to date'; return 0; fi
  # Wrangler calls this script without make, so it sets up by itself.
  "$HERE/setup.sh"
  choose_compiler
  step 'bundle' compile "$hash"
  # The first build of a machine learns what the sources include only now.
  printf '%s' "$(inputs_hash)" >"$STAMP"
  sizes
}

main
