# SPDX-License-Identifier: Apache-2.0
# Reads the output of `go test -v`: shows one line per top-level test as it ends, the whole output of
# packages that failed, and the counts as the last line.
# The counts are kept in the file `totals` between calls, so that several runs add up.

function finish_package() {
	delete kept
	n = failed_here = 0
}

BEGIN {
	if (totals != "" && (getline line < totals) > 0) {
		split(line, t)
		passed = t[1] + 0
		failed = t[2] + 0
		skipped = t[3] + 0
	}
}

{ kept[n++] = $0 }

/^ *--- PASS: / { passed++ }
/^ *--- FAIL: / { failed++; failed_here++ }
/^ *--- SKIP: / { skipped++ }
/^--- (PASS|FAIL|SKIP): / { print "  " $0; fflush(); next }

/^(ok  |\?   )\t/ || /^\t.*\[no test files\]$/ {
	if ($0 !~ /no test files/)
		print
	fflush()
	finish_package()
	next
}

/^FAIL\t/ {
	if (!failed_here)
		failed++ # a package that did not build, panicked or ran out of time
	for (i = 0; i < n; i++)
		print kept[i]
	fflush()
	finish_package()
}

END {
	# What follows the last package line is the go command's own word, such as a build error.
	for (i = 0; i < n; i++)
		if (kept[i] != "FAIL")
			print kept[i]
	if (totals != "")
		print passed + 0, failed + 0, skipped + 0 > totals
	if (last)
		printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
}
