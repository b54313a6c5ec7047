#!/usr/bin/env bash
# Installs roundtrip from the offline bundle: needs g++ and a torch (found through Python, or ROUNDTRIP_TORCH), no network and no Node.
set -euo pipefail

usage="usage: bash install.sh [--prefix DIR] [--test]
  --prefix DIR   install below DIR (default ~/.local): DIR/lib/roundtrip and the command DIR/bin/roundtrip
  --test         run the engine's tests afterwards (on the GPU too, if there is one)"
prefix="${HOME:-/root}/.local"
run_tests=no

stop() { echo "install: $1" >&2; exit 1; }

while [ $# -gt 0 ]; do
  case "$1" in
    --prefix) [ $# -ge 2 ] || stop "--prefix needs a folder"; prefix="$2"; shift 2 ;;
    --prefix=*) prefix="${1#--prefix=}"; shift ;;
    --test) run_tests=yes; shift ;;
    -h | --help) echo "$usage"; exit 0 ;;
    *) stop "unknown argument $1
$usage" ;;
  esac
done

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || stop "this bundle is for Linux on x86_64, this is $(uname -s) on $(uname -m)"
[ -x "$here/node" ] && [ -d "$here/app" ] || stop "node and app/ are not beside install.sh: unpack the whole archive first"
"$here/node" --version > /dev/null || stop "the bundled Node does not start here (it needs glibc 2.28 or newer and libstdc++)"
command -v "${CXX:-g++}" > /dev/null || command -v c++ > /dev/null || stop "no C++ compiler: install g++ or set CXX"

mkdir -p "$prefix/lib" "$prefix/bin"
prefix="$(cd "$prefix" && pwd -P)"
lib="$prefix/lib/roundtrip"

# a new installation takes the old one's place only when it is built
old="$lib.old.$$"
[ ! -e "$lib" ] || mv "$lib" "$old"
restore() {
  rm -rf "$lib"
  [ ! -e "$old" ] || mv "$old" "$lib"
}
trap restore EXIT
echo "copying to $lib" >&2
mkdir "$lib"
cp -a "$here/node" "$here/app" "$lib/"

export ROUNDTRIP_CACHE="$lib/cache" ROUNDTRIP_NO_INSTALL=1
"$lib/node" "$lib/app/scripts/setup.mjs"

launcher="$prefix/bin/roundtrip"
{
  echo '#!/bin/sh'
  echo "export ROUNDTRIP_CACHE=\"\${ROUNDTRIP_CACHE:-$lib/cache}\""
  [ -z "${ROUNDTRIP_TORCH:-}" ] || echo "export ROUNDTRIP_TORCH=\"\${ROUNDTRIP_TORCH:-$(realpath -s "$ROUNDTRIP_TORCH")}\""
  echo "exec \"$lib/node\" \"$lib/app/src/cli/main.js\" \"\$@\""
} > "$launcher.new"
chmod 755 "$launcher.new"
mv "$launcher.new" "$launcher"
trap - EXIT
rm -rf "$old"
echo "installed: $launcher" >&2
case ":$PATH:" in *":$prefix/bin:"*) ;; *) echo "add it to your path: export PATH=\"$prefix/bin:\$PATH\"" >&2 ;; esac

if [ "$run_tests" = yes ]; then
  "$lib/node" "$lib/app/scripts/test.mjs" src/engine src/tensor src/nn src/models tests/parity tests/invariant tests/gpu
fi
