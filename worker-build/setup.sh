#!/usr/bin/env bash
# Brings what the project needs and the machine lacks. Each step looks first and does nothing when its result is there.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$HERE/compiler.sh"

# The npm packages: wrangler, workerd, esbuild, binaryen, Node, and the clients that the tests drive.
npm_packages() {
  local want stamp=$ROOT/node_modules/.rejoin-stamp
  want=$(cat "$ROOT/package.json" "$ROOT/package-lock.json" | hash_lines)
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && return 0
  has npm || fail 'npm is missing: install Node and npm'
  # No install script is needed: the binaries of esbuild, workerd and Node are packages of their own.
  (cd "$ROOT" && step 'npm packages' unlocked npm ci --ignore-scripts --loglevel=error --no-audit --no-fund </dev/null >&2)
  printf '%s' "$want" >"$stamp"
}

node_version() {
  has node || fail 'Node is missing: install Node and npm'
  PATH=$NODE_BIN:$PATH node -e "
    const [have, want] = [process.versions.node, '$MIN_NODE'].map((version) => version.split('.').map(Number));
    process.exit(have[0] > want[0] || (have[0] === want[0] && have[1] >= want[1]) ? 0 : 1)" ||
    fail "Node ≥ $MIN_NODE is needed (the npm packages bring it on Linux only); here is $(node --version)"
}

# What crates need from the machine: a linker and C compiler (for SQLite in the tests), and OpenSSL's headers for worker-build.
c_compiler() {
  has cc || { has apt-get && debian_install gcc libc6-dev; } || fail 'A C compiler (cc) is needed'
}

openssl_headers() {
  { has pkg-config && pkg-config --exists openssl; } 2>/dev/null ||
    { has apt-get && debian_install pkg-config libssl-dev; } ||
    fail 'To build worker-build, pkg-config and the headers of OpenSSL are needed (Debian: pkg-config libssl-dev)'
}

# cargo_tool NAME VERSION CRATE BINARY [FLAG…]: one tool in a folder of its own, named by its version.
cargo_tool() {
  local name=$1 version=$2 crate=$3 binary=$4
  shift 4
  local folder=$CACHE/tools/$name-$version
  [ -x "$folder/bin/$binary" ] && return 0
  openssl_headers
  # Debug builds: half the time to install, and fast enough. Both tools share their crates.
  step "$name $version (a few minutes, once per machine)" unlocked \
    env -u RUSTC_BOOTSTRAP -u RUSTFLAGS CARGO_TARGET_DIR="$CACHE/tools-target" \
    "$NATIVE_CARGO" install "$crate" --version "=$version" --debug --root "$folder" "$@" </dev/null >&2
  tools_installed=yes
}

main() {
  local start=$SECONDS tools_installed='' bindgen
  mkdir -p "$CACHE"
  lock "$CACHE/setup.lock"
  npm_packages
  node_version
  c_compiler
  choose_compiler install
  native_compiler
  bindgen=$(locked_version wasm-bindgen)
  [ -n "$bindgen" ] || fail 'Cargo.lock names no wasm-bindgen'
  cargo_tool worker-build "$WORKER_BUILD_VERSION" worker-build worker-build --locked
  # Without --locked: the lock file of 0.2.130 names a yanked crate.
  cargo_tool wasm-bindgen "$bindgen" wasm-bindgen-cli wasm-bindgen
  [ -z "$tools_installed" ] || rm -rf "$CACHE/tools-target"
  say "set up in $((SECONDS - start)) s; the bundle's compiler: $COMPILER_WAY"
}

main
