// SPDX-License-Identifier: Apache-2.0

package text

import (
	"strings"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	tab := Table{Indent: " ", Right: []bool{false, true}}
	tab.Add("a", "1", "x")
	tab.Add("long", "22")
	tab.Add("ü", "", "y")
	got := strings.Join(tab.Lines(), "\n")
	if want := " a      1  x\n long  22\n ü         y"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 packets", 1: "1 packet", 2: "2 packets", 1000: "1000 packets"} {
		if got := Count(n, "packet"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.25: "0.2", 1: "1", 9.96: "10", 12.3: "12", 999.4: "999", 999.5: "1.00k", 1234: "1.23k", 9995: "10.0k",
		45_600: "45.6k", 456_789: "457k", 999_500: "1.00M", 1.5e9: "1.50G", 2e18: "2.00E", 3e22: "30000E",
	} {
		if got := Short(v); got != want {
			t.Errorf("Short(%v) = %s, want %s", v, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := Grouped(n); got != want {
			t.Errorf("Grouped(%d) = %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m01s", 3661 * time.Second: "1h01m", 90000 * time.Second: "1d01h",
	} {
		if got := Ago(d); got != want {
			t.Errorf("Ago(%v) = %s, want %s", d, got, want)
		}
	}
}
