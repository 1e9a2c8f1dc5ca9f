#!/usr/bin/env bash
# Everything that must hold before a change lands.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$HERE/compiler.sh"

# These need the machine for themselves: they may build.
ALONE='make-run'

cd "$ROOT"
REJOIN_STAGES=$(mktemp)
BUILDING=$(mktemp)
export REJOIN_STAGES
export PATH=$NODE_BIN:$PATH
build=''

told() {
  [ -z "$build" ] || kill -- "-$build" 2>/dev/null || true
  printf '\n%6s  stage\n' s
  cat "$REJOIN_STAGES"
  printf '%6d  all of it\n' "$SECONDS"
  rm -f "$REJOIN_STAGES" "$BUILDING"
}
trap 'told >&2' EXIT

# The bundle keeps one core busy for as long as the checks and the native tests keep the other; in a process group of its own, so that it
# can be ended.
begin_build() {
  "$HERE/setup.sh"
  set -m
  "$HERE/build.sh" >"$BUILDING" 2>&1 &
  build=$!
  set +m
}

end_build() {
  local code=0
  wait "$build" || code=$?
  build=''
  cat "$BUILDING" >&2
  return "$code"
}

begin_build
"$HERE/check.sh"
choose_compiler
native_compiler

dry_deploy() {
  WRANGLER_SEND_METRICS=false WRANGLER_HIDE_BANNER=true WRANGLER_WRITE_LOGS=false \
    node "$NODE_BIN/wrangler" deploy --dry-run --outdir "$ROOT/target/dry-deploy" </dev/null
}

step 'native tests' "$NATIVE_CARGO" test --locked --quiet
step 'fold and floors against the published clients' node --test tests/fold/*.test.mjs
step 'tests of the tools' node --test worker-build/*.test.mjs launcher/*.test.mjs tests/e2e/harness/*.test.mjs
step 'the rest of the bundle' end_build
step 'simulation' "$HERE/sim.sh"

together=()
alone=()
for file in tests/e2e/*.test.mjs; do
  case " $ALONE " in
    *" $(basename "$file" .test.mjs) "*) alone+=("$file") ;;
    *) together+=("$file") ;;
  esac
done
step 'end-to-end tests, two files at a time' node --test --test-concurrency=2 "${together[@]}"
step 'end-to-end tests, one at a time' node --test --test-concurrency=1 "${alone[@]}"
step 'wrangler deploy --dry-run' dry_deploy
