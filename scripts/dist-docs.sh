#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lays out below DIR the pages as a package has them, with what they link to. Fails when something that they link to is not among it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly dir=${1:?usage: dist-docs.sh DIR}

rm -rf "$dir"
install -D -m 644 -t "$dir" LICENSE LICENSES/* README.md SECURITY.md
install -D -m 644 -t "$dir/docs" docs/*.md docs/api.yaml
install -D -m 644 -t "$dir/docs/img" docs/img/*
install -D -m 644 dist/culvert.toml "$dir/examples/culvert.toml"
gzip -9 -n -c CHANGELOG.md >"$dir/changelog.gz"
# Links lead to what is installed. Those to the sources are text.
sed -i -e 's,](CHANGELOG\.md),](changelog.gz),' -e 's,\[LICENSES/\](LICENSES/),[this directory](.),' "$dir"/*.md
sed -i -E 's,\[([^]]*)\]\(\.\./(bpf|cmd|internal|scripts|dist)/[^)]*\),\1,g' "$dir/docs"/*.md
scripts/check-links.sh "$dir"
