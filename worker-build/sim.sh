#!/usr/bin/env bash
# The simulation (COUNT, SEED, SUBJECT). With COUNT or SEED only the campaigns run, without the faults that are planted.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$HERE/compiler.sh"

cd "$ROOT"
"$HERE/setup.sh"
choose_compiler
native_compiler

tests=()
[ -z "${COUNT:-}${SEED:-}${SUBJECT:-}" ] || tests=("${SUBJECT:-}::holds")
export COUNT SEED RUST_BACKTRACE=0
exec "$NATIVE_CARGO" test --locked --quiet --profile simulation --features simulation --test world -- --nocapture "${tests[@]}"
