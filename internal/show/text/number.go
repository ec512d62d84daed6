// SPDX-License-Identifier: Apache-2.0

// Package text formats numbers and tables for people.
package text

import (
	"fmt"
	"strconv"
	"time"
)

// Grouped formats a number with commas between thousands: 1,234,567.
func Grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Count formats a number with what it counts, in the singular: 1 packet, 2 packets.
func Count(n uint64, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.FormatUint(n, 10) + " " + what
}

// Short formats a quantity with three significant digits and a decimal prefix: 999, 1.23k, 45.6M.
func Short(v float64) string {
	const prefixes = "kMGTPE"
	if v < 999.5 {
		// A small rate keeps a decimal, so that less than one packet a second is not shown as 0.
		if v > 0 && v < 9.95 && v != float64(int(v)) {
			return strconv.FormatFloat(v, 'f', 1, 64)
		}
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	n := -1
	for v >= 999.5 && n < len(prefixes)-1 {
		v /= 1000
		n++
	}
	digits := 2
	switch {
	case v >= 99.95:
		digits = 0
	case v >= 9.995:
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + prefixes[n:n+1]
}

// ShortBytes formats a number of bytes with a decimal prefix: 1.23kB.
func ShortBytes(n uint64) string { return Short(float64(n)) + "B" }

// Ago formats a duration in its two largest units: 1m30s. A negative one is 0s.
func Ago(d time.Duration) string {
	s := max(int(d.Seconds()), 0)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	default:
		return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
	}
}
