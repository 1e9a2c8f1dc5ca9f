#!/usr/bin/env bash
# The measured budgets.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "$ROOT"
"$HERE/build.sh"
[ -f bench/run.mjs ] || fail 'bench/run.mjs is not written yet'
export PATH=$NODE_BIN:$PATH
exec node bench/run.mjs
