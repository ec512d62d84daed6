// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"culvert/internal/lb"
)

func TestParseEntry(t *testing.T) {
	for text, want := range map[string]lb.Offer{
		"10.0.0.1": {Addr: netip.MustParseAddr("10.0.0.1"), Weight: 1},
		" fd00::1\tweight=0 encapsulation=gue gue_port=6081 server_id=0aff ": {
			Addr: netip.MustParseAddr("fd00::1"), Encap: lb.EncapGUE, GUEPort: 6081, ServerID: "0aff"},
	} {
		if got, err := ParseEntry(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                                       "address of a backend is missing",
		"web1":                                   `"web1" is no IP address`,
		"10.0.0.1:80":                            "write it without a port, as 10.0.0.1",
		"10.0.0.1 2":                             "write it as weight=2",
		"10.0.0.1 weight=-1":                     "weight -1: use 0 to 65535",
		"10.0.0.1 weight=65536":                  "use 0 to 65535",
		"10.0.0.1 weight=x":                      `weight "x" is no number`,
		"10.0.0.1 weight=1 weight=2":             "has weight twice",
		"10.0.0.1 encapsulation=vxlan":           "use ipip, gue or l2",
		"10.0.0.1 gue_port=0":                    "use 1 to 65535",
		"10.0.0.1 server_id=x":                   "two hexadecimal digits",
		"10.0.0.1 color=red":                     `unknown setting "color"`,
		strings.Repeat("x", 1<<20):               "... is no address of a backend",
		"10.0.0.1 " + strings.Repeat("x", 1<<20): "is no setting",
	} {
		_, err := ParseEntry(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 200 {
			t.Errorf("%.40q: error %v, want one with %q", text, err, want)
		}
	}
}

func TestList(t *testing.T) {
	var l List
	for place, text := range map[string]string{"line 3": "10.0.0.3", "line 1": "10.0.0.1"} {
		if err := l.Parse(place, text); err != nil {
			t.Error(err)
		}
	}
	if err := l.Parse("line 4", "10.0.0.1 weight=2"); err == nil || err.Error() != "line 4: backend 10.0.0.1 is there twice, first in line 1" {
		t.Errorf("error %v", err)
	}
	if err := l.Parse("line 5", "web"); err == nil || !strings.HasPrefix(err.Error(), "line 5: ") {
		t.Errorf("error %v", err)
	}
	if got := texts(l.All()); got != "1 3" {
		t.Errorf("the list has %s", got)
	}
	a := netip.MustParseAddr("fd00::1")
	for len(l.all) < Most {
		if err := l.Add("", lb.Offer{Addr: a}); err != nil {
			t.Fatal(err)
		}
		a = a.Next()
	}
	if err := l.Add("", lb.Offer{Addr: a}); !errors.Is(err, ErrTooMany) {
		t.Errorf("error %v for one more", err)
	}
}
