#!/usr/bin/env bash
# Turns src/ into build/ (wrangler's [build] command, too). Does nothing when nothing changed.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$HERE/compiler.sh"

OUT=$ROOT/build
# QUICK=1: for trying a change. The bundle is twice as large and slower, and is there in a third of the time.
QUICK=${QUICK:-}
STAMP=$OUT/.stamp
BEGAN=$ROOT/target/rejoin-build.began
DEP_INFO=$ROOT/target/wasm32-unknown-unknown/release/rejoin.d

# Lists the files that every bundle is made of: the sources, the pins of the tools, these scripts.
sources() {
  find src worker-build/bin -type f
  printf '%s\n' worker-build/build.sh worker-build/compiler.sh worker-build/lib.sh Cargo.toml Cargo.lock build.rs package-lock.json
}

# And what the sources of the last build included from elsewhere, which cargo wrote down.
included() {
  [ ! -f "$DEP_INFO" ] || sed -n '1s/^[^:]*: *//p' "$DEP_INFO" | sed 's/\\ /\a/g' | tr ' \a' '\n ' | sed "s|^$ROOT/||" | grep -v '^/' || true
}

all_inputs() { sources; included; }

# those LIST: the files of a list that exist, each once, ending with a zero byte.
those() { "$@" | LC_ALL=C sort -u | while IFS= read -r file; do if [ -f "$file" ]; then printf '%s\0' "$file"; fi; done; }

hash_of() {
  { if has sha256sum; then those "$1" | xargs -0 sha256sum; else those "$1" | xargs -0 shasum -a 256; fi; printf '%s' "$QUICK"; } | hash_lines
}

fresh() { [ -f "$STAMP" ] && [ -f "$OUT/index.js" ] && [ -f "$OUT/index_bg.wasm" ] && [ "$(cat "$STAMP")" = "$1" ]; }

compile() {
  local bindgen
  bindgen=$(locked_version wasm-bindgen)
  use_compiler
  export WASM_BINDGEN_BIN=$CACHE/tools/wasm-bindgen-$bindgen/bin/wasm-bindgen
  export WASM_OPT_BIN=$NODE_BIN/wasm-opt ESBUILD_BIN=$NODE_BIN/esbuild
  # For `option_env!`: which build this is. It changes only when the sources do.
  REJOIN_BUILD=$(hash_of sources | cut -c1-12)
  export REJOIN_BUILD
  # Where a panic happened is read from its stack (strip_names); the places in the code, with the std that is made for speed, are a fortieth of the bundle.
  export RUSTFLAGS=-Zlocation-detail=none
  export CARGO_UNSTABLE_BUILD_STD_FEATURES=panic-unwind,optimize_for_size
  local no_opt=''
  if [ -n "$QUICK" ]; then
    export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=64 CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_INCREMENTAL=true
    no_opt=--no-opt
  fi
  unlocked "$CACHE/tools/worker-build-$WORKER_BUILD_VERSION/bin/worker-build" --release --panic-unwind $no_opt </dev/null >&2
}

# What workerd runs; newer encodings it may not know.
WASM_FEATURES='--enable-mutable-globals --enable-sign-ext --enable-nontrapping-float-to-int --enable-bulk-memory --enable-multivalue
  --enable-reference-types --enable-exception-handling'

# Function names are a tenth of the bundle. The copy that has them stays behind, to read a stack of this build with. Before they go, functions
# are sorted by them: gzip finds what is alike only where it lies close together.
strip_names() {
  local named=$ROOT/target/rejoin-named.wasm
  "$NODE_BIN/wasm-opt" $WASM_FEATURES -Os --reorder-functions-by-name --debuginfo "$OUT/index_bg.wasm" -o "$named"
  "$NODE_BIN/wasm-opt" $WASM_FEATURES --strip-debug --strip-producers "$named" -o "$OUT/index_bg.wasm"
}

sizes() {
  local raw packed
  raw=$(cat "$OUT/index.js" "$OUT/index_bg.wasm" | wc -c)
  packed=$(cat "$OUT/index.js" "$OUT/index_bg.wasm" | gzip -9 | wc -c)
  say "build/: $((raw / 1000)) kB, gzipped $((packed / 1000)) kB"
}

main() {
  local hash
  hash=$(hash_of all_inputs)
  if fresh "$hash"; then say 'build/ is up to date'; return 0; fi
  lock "$ROOT/target/rejoin-build.lock"
  # Somebody else may have built it while this one waited.
  hash=$(hash_of all_inputs)
  if fresh "$hash"; then say 'build/ is up to date'; return 0; fi
  # Wrangler calls this script without make, so it sets up by itself.
  "$HERE/setup.sh"
  choose_compiler
  rm -f "$STAMP"
  touch "$BEGAN"
  step 'bundle' compile
  [ -n "$QUICK" ] || strip_names
  # Asked again, because only now it is known what the sources include.
  hash=$(hash_of all_inputs)
  if [ -n "$(those all_inputs | xargs -0 -I{} find {} -newer "$BEGAN")" ]; then
    say 'the sources changed during the build; the next one takes them'
  else
    printf '%s' "$hash" >"$STAMP"
  fi
  sizes
}

cd "$ROOT"
main
