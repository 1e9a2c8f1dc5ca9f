#!/usr/bin/env bash
# Format and lint. The host's lint never sees the shell, so the wasm target is linted by itself, as the bundle is built.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$HERE/compiler.sh"

cd "$ROOT"
"$HERE/setup.sh"
choose_compiler
native_compiler

wasm_lint() (
  use_compiler
  # Called by path: `cargo clippy` might find the clippy of another compiler.
  CARGO=$REJOIN_CARGO RUSTFLAGS=-Cpanic=unwind "$REJOIN_CLIPPY" clippy --locked --lib --target wasm32-unknown-unknown \
    -Zbuild-std=std,panic_unwind -- -D warnings
)

# All three are told, also when the first one fails.
failed=''
step 'format' "$NATIVE_CARGO" fmt --check || failed="$failed format"
step 'lint, host' "$NATIVE_CARGO" clippy --locked --all-targets -- -D warnings || failed="$failed host"
step 'lint, wasm' wasm_lint || failed="$failed wasm"
[ -z "$failed" ] || fail "make check:$failed"
