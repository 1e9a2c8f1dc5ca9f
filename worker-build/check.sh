#!/usr/bin/env bash
# Format, imports and lint. The host's lint never sees the shell, so the wasm target is linted by itself, as the bundle is built.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$HERE/compiler.sh"

cd "$ROOT"
export PATH=$NODE_BIN:$PATH
"$HERE/setup.sh"
choose_compiler
native_compiler

wasm_lint() (
  use_compiler
  # Called by path: `cargo clippy` might find the clippy of another compiler.
  CARGO=$REJOIN_CARGO RUSTFLAGS=-Cpanic=unwind "$REJOIN_CLIPPY" clippy --locked --lib --target wasm32-unknown-unknown \
    -Zbuild-std=std,panic_unwind -- -D warnings
)

# All four are told, also when the first one fails.
failed=''
step 'format' "$NATIVE_CARGO" fmt --check || failed="$failed format"
step 'imports' node "$HERE/imports.mjs" || failed="$failed imports"
step 'lint, host' "$NATIVE_CARGO" clippy --locked --all-targets --features simulation -- -D warnings || failed="$failed host"
step 'lint, wasm' wasm_lint || failed="$failed wasm"
[ -z "$failed" ] || fail "make check:$failed"
