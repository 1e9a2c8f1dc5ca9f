#!/usr/bin/env bash
# Builds what is stale, then serves in the foreground until SIGTERM or Ctrl-C.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

"$HERE/build.sh"
export PATH=$NODE_BIN:$PATH
REJOIN_FOLLOW_PARENT=1 exec node "$ROOT/launcher/serve.mjs"
