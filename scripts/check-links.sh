#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails when a page links to a file that is not there: check-links.sh PAGE|DIR... A DIR stands for all pages in it.
set -euo pipefail

status=0
while read -r page; do
  while read -r target; do
    [[ -e ${page%/*}/$target ]] || {
      echo "$page links to $target, which is not there" >&2
      status=1
    }
  done < <(grep -oE '\]\([^)[:space:]]+\)' "$page" | sed -E 's/^\]\(//; s/\)$//; s/#.*//' | grep -vE '^$|^[a-z]+:' || true)
done < <(find "$@" -type f -name '*.md' -printf '%h/%f\n')
exit $status
