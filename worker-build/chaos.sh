#!/usr/bin/env bash
# The kill campaign (SEED, COUNT, LANES, RELOADS).

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "$ROOT"
"$HERE/build.sh"
export PATH=$NODE_BIN:$PATH
exec node tests/chaos/run.mjs
