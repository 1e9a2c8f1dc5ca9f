# Chooses the compiler of the bundle. Sourced after lib.sh.
#
# The standard library for wasm is always built from the compiler's own sources (panic=unwind needs that), so a compiler serves only with
# its `rust-src`. Tried in this order:
#   1. rustup's active compiler, if it is new enough and its rust-src is there or can be added;
#   2. Debian's packages rustc-web, cargo-web, rust-web-src;
#   3. neither: say what to install.
# REJOIN_COMPILER=rustup or debian takes one way only.
#
# choose_compiler sets: COMPILER_WAY, REJOIN_CARGO, REJOIN_RUSTC, REJOIN_CLIPPY, REJOIN_LINKER (empty: the compiler's own).

rust_minor() { "$1" --version 2>/dev/null | sed -n 's/^rustc 1\.\([0-9]*\)\..*/\1/p' || true; }

has_sources() { [ -f "$1/lib/rustlib/src/rust/library/std/Cargo.toml" ] && [ -f "$1/lib/rustlib/src/rust/library/Cargo.lock" ]; }

# May be called with `install` to add what is missing; without it, it only looks.
choose_compiler() {
  local mode=${1:-look} way=${REJOIN_COMPILER:-any} why_not_rustup='' why_not_debian=''
  case $way in any | rustup | debian) ;; *) fail "REJOIN_COMPILER is '$way'; say rustup or debian" ;; esac
  if [ "$way" != debian ]; then rustup_compiler "$mode" && return 0; else why_not_rustup='not asked for'; fi
  if [ "$way" != rustup ]; then debian_compiler "$mode" && return 0; else why_not_debian='not asked for'; fi
  no_compiler "$why_not_rustup" "$why_not_debian"
}

rustup_compiler() {
  local mode=$1 sysroot minor release refused
  if ! has rustup; then why_not_rustup='rustup is not installed'; return 1; fi
  # In the project's folder, so that an override of the user holds; never with a download of a toolchain.
  sysroot=$(cd "$ROOT" && RUSTUP_AUTO_INSTALL=0 rustup run "$(rustup_toolchain)" rustc --print sysroot 2>/dev/null) || sysroot=''
  if [ -z "$sysroot" ]; then why_not_rustup='rustup has no active toolchain (rustup default stable)'; return 1; fi
  minor=$(rust_minor "$sysroot/bin/rustc")
  if [ "${minor:-0}" -lt "$MIN_RUST_MINOR" ]; then
    why_not_rustup="rustup's active compiler is 1.${minor:-?}, older than 1.$MIN_RUST_MINOR (rustup update stable)"
    return 1
  fi
  if ! has_sources "$sysroot"; then
    why_not_rustup="rust-src of rustup's compiler is missing (rustup component add rust-src)"
    release=$("$sysroot/bin/rustc" --version | cut -d' ' -f2)
    refused=$CACHE/rust-src-refused-$(basename "$sysroot")-$release
    if [ "$mode" != install ] || [ -e "$refused" ]; then return 1; fi
    say "adding rust-src to rustup's $(basename "$sysroot") (at most 20 s)"
    if ! (cd "$ROOT" && within 20 rustup component add rust-src --toolchain "$(rustup_toolchain)" >&2) || ! has_sources "$sysroot"; then
      mkdir -p "$CACHE"
      date >"$refused"
      say "rust-src could not be added; not tried again while this file is there: $refused"
      return 1
    fi
  fi
  COMPILER_WAY="rustup's $(basename "$sysroot") with its rust-src"
  REJOIN_CARGO=$sysroot/bin/cargo
  REJOIN_RUSTC=$sysroot/bin/rustc
  REJOIN_CLIPPY=$sysroot/bin/cargo-clippy
  REJOIN_LINKER=''
}

rustup_toolchain() { (cd "$ROOT" && RUSTUP_AUTO_INSTALL=0 rustup show active-toolchain 2>/dev/null | sed -n '1s/ .*//p'); }

debian_compiler() {
  local mode=$1 minor llvm missing
  if ! has apt-get || ! has dpkg-query; then why_not_debian='this is no Debian'; return 1; fi
  missing=$(debian_missing rustc-web cargo-web rust-web-src rust-web-clippy rustfmt-web)
  if [ -n "$missing" ]; then
    why_not_debian="Debian's packages are missing:$missing"
    [ "$mode" = install ] && debian_install $missing || return 1
  fi
  minor=$(rust_minor /usr/bin/rustc)
  if [ "${minor:-0}" -lt "$MIN_RUST_MINOR" ]; then why_not_debian="Debian's compiler is 1.${minor:-?}, older than 1.$MIN_RUST_MINOR"; return 1; fi
  if ! has_sources /usr; then why_not_debian='rust-web-src has no sources in /usr/lib/rustlib/src'; return 1; fi
  # Debian's compiler looks for a rust-lld that Debian does not ship; the lld of its own LLVM serves.
  llvm=$(/usr/bin/rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
  if ! has "wasm-ld-$llvm"; then
    why_not_debian="Debian's package lld-$llvm is missing"
    [ "$mode" = install ] && debian_install "lld-$llvm" || return 1
  fi
  COMPILER_WAY="Debian's rustc-web 1.$minor with rust-web-src and lld-$llvm"
  REJOIN_CARGO=/usr/bin/cargo
  REJOIN_RUSTC=/usr/bin/rustc
  REJOIN_CLIPPY=/usr/bin/cargo-clippy
  REJOIN_LINKER=wasm-ld-$llvm
}

apt_get() {
  DEBIAN_FRONTEND=noninteractive apt-get -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" >"$CACHE/apt.log" 2>&1 </dev/null
}

# Prints the packages of the list that are not installed, each after a space.
debian_missing() {
  local package
  for package; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf ' %s' "$package"
  done
}

debian_install() {
  if [ "$(id -u)" -ne 0 ]; then
    say "not root, so Debian's packages cannot be added:$(printf ' %s' "$@")"
    return 1
  fi
  say "apt-get install$(printf ' %s' "$@")"
  # The list of packages is refreshed only when it is too old to serve.
  apt_get install "$@" && return 0
  apt_get update && apt_get install "$@" && return 0
  tail -n 5 "$CACHE/apt.log" >&2
  return 1
}

# The cargo of native tests, lints and tools: the one on PATH (rustup's, as a rule), or Debian's. After choose_compiler.
native_compiler() {
  local minor=''
  if has cargo && has rustc; then minor=$(cd "$ROOT" && rust_minor rustc); fi
  NATIVE_CARGO=cargo
  # Ahead in PATH, so that it also finds its own rustc, clippy and rustfmt.
  if [ "${minor:-0}" -lt "$MIN_RUST_MINOR" ]; then export PATH=$(dirname "$REJOIN_CARGO"):$PATH; fi
}

no_compiler() {
  fail "No compiler here can build the bundle. It needs Rust ≥ 1.$MIN_RUST_MINOR with the sources of its standard library. Either:
    rustup toolchain install stable && rustup component add rust-src
  or, on Debian as root:
    apt-get update && apt-get install -y --no-install-recommends rustc-web cargo-web rust-web-src rust-web-clippy rustfmt-web lld-22
  Why not rustup: $1.
  Why not Debian: $2."
}

# The environment in which cargo, rustc and worker-build see the chosen compiler and nothing else.
use_compiler() {
  export REJOIN_CARGO REJOIN_RUSTC REJOIN_EMPTY_LIBDIR=$CACHE/empty-libdir
  mkdir -p "$REJOIN_EMPTY_LIBDIR"
  export PATH=$HERE/bin:$NODE_BIN:$PATH
  # The stable compiler is told to accept -Zbuild-std.
  export RUSTC_BOOTSTRAP=1
  unset RUSTC RUSTUP_TOOLCHAIN RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
  export CARGO_TARGET_DIR=$ROOT/target
  [ -z "$REJOIN_LINKER" ] || export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=$REJOIN_LINKER
}
