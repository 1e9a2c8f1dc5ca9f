#!/usr/bin/env bash
# Everything that must hold before a change lands.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$HERE/compiler.sh"

cd "$ROOT"
export PATH=$NODE_BIN:$PATH
"$HERE/check.sh"
choose_compiler
native_compiler

dry_deploy() {
  WRANGLER_SEND_METRICS=false WRANGLER_HIDE_BANNER=true WRANGLER_WRITE_LOGS=false \
    node "$NODE_BIN/wrangler" deploy --dry-run --outdir "$ROOT/target/dry-deploy" </dev/null
}

step 'native tests' "$NATIVE_CARGO" test --locked --quiet
step 'fold and floors against the published clients' node --test tests/fold/*.test.mjs
"$HERE/build.sh"
step 'tests of the tools' node --test worker-build/*.test.mjs launcher/*.test.mjs
if compgen -G 'tests/e2e/*.test.mjs' >/dev/null; then
  step 'end-to-end tests' node --test --test-concurrency=1 tests/e2e/*.test.mjs
else
  say 'no end-to-end tests in tests/e2e'
fi
step 'wrangler deploy --dry-run' dry_deploy
say "all of it in $SECONDS s"
