#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian package of BINARY (bin/culvert) for ARCH (amd64), out/deb/culvert_VERSION_ARCH.deb, and beside it the list of
# what is in the binary: culvert_VERSION_ARCH.cdx.json (CycloneDX). SOURCE_DATE_EPOCH is the time of the commit, not of the build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export VERSION=${1:?usage: deb.sh VERSION} ARCH=${ARCH:-amd64} BINARY=${BINARY:-bin/culvert}
readonly root=out/deb/root name=out/deb/culvert_${VERSION}_$ARCH
readonly doc=$root/usr/share/doc/culvert

# The programs are pinned by a go.mod of their own, which the product does not depend on.
tool() {
  go tool -modfile=tools/go.mod "$@"
}

is=$(go version -m "$BINARY" | sed -n 's/.*GOARCH=//p')
[[ $is == "$ARCH" ]] || {
  echo "$BINARY is for $is, and the package would be for $ARCH: make deb ARCH=$ARCH" >&2
  exit 1
}
built=$(bin/culvert version -j | sed 's/^{"version":"\([^"]*\)".*/\1/')
[[ $built == "$VERSION" ]] || {
  echo "bin/culvert is $built, and the package would be $VERSION: make deb VERSION=$VERSION" >&2
  exit 1
}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y VERSION)
export SOURCE_DATE_EPOCH

# third_party prints the licences of the modules that are linked into the binary, as these demand.
third_party() {
  local module version dir file
  go version -m "$BINARY" | awk '$1 == "dep" { print $2, $3 }' | while read -r module version; do
    dir=$(go list -m -f '{{.Dir}}' "$module")
    for file in "$dir"/{LICENSE,LICENCE,COPYING,NOTICE}*; do
      [[ ! -f $file ]] || printf '== %s %s: %s\n\n%s\n\n' "$module" "$version" "${file##*/}" "$(<"$file")"
    done
  done
}

umask 022
mkdir -p out/deb
scripts/dist.sh "$root" >/dev/null
install -D -m 640 dist/culvert.toml "$root/etc/culvert/culvert.toml"
# As packages have it: copyright with the licences that no system has, and those of others in a file of their own.
rm "$doc/LICENSE" "$doc"/*-*.txt
install -m 644 dist/deb/copyright "$doc/copyright"
sed -i 's,\[this directory\](\.),[copyright](copyright),' "$doc/README.md"
third_party | gzip -9 -n >"$doc/third-party-licenses.gz"
scripts/check-links.sh "$doc"

# quietly COMMAND... shows what a command says only if it fails.
quietly() {
  "$@" >"$name.log" 2>&1 || {
    cat "$name.log" >&2
    exit 1
  }
  rm "$name.log"
}

rm -f "$name".*
quietly tool cyclonedx-gomod bin -json -std -noserial -version "$VERSION" -output "$name.cdx.json" "$BINARY"
quietly tool nfpm package --config dist/deb/nfpm.yaml --packager deb --target "$name.deb"
ls -l "$name".*
