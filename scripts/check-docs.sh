#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails when docs/security.md names a test that is not there, or README.md does not name a package that deps.sh
# installs: what a page promises, a test has to keep.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

status=0
while read -r name; do
  git grep -q --untracked -E "func $name\(" -- '*_test.go' || {
    echo "docs/security.md names $name, and there is no such test" >&2
    status=1
  }
done < <(grep -oE '\b(Test|Fuzz)[A-Z][A-Za-z0-9]*' docs/security.md | sort -u)
while read -r package; do
  grep -qE "(^|[ (])${package//./\\.}[,) ]" README.md || {
    echo "scripts/deps.sh installs $package, and README.md does not say so" >&2
    status=1
  }
done < <(sed -n 's/^  \[\([a-z0-9.-]*\)\]=.*/\1/p' scripts/deps.sh | sort -u)
exit $status
