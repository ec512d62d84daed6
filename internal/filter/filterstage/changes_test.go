// SPDX-License-Identifier: Apache-2.0

package filterstage

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"culvert/internal/config"
	"culvert/internal/stage"
)

func compile(t *testing.T, text string) *Plan {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(path, []byte("interfaces = [\"a\", \"b\"]\n[filter]\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := config.Load(path, []config.Part{{Name: Stage{}.Name(), New: Stage{}.Table}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := Compile(stage.File{Path: path, Node: n})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestChanges compares files. The lines say what differs.
func TestChanges(t *testing.T) {
	const (
		dns     = "[[filter.rule]]\nname = \"dns\"\naction = \"limit\"\nrate = \"1kpps\"\nexpression = \"udp port 53\"\n"
		web     = "[[filter.rule]]\nname = \"web\"\naction = \"count\"\nexpression = \"tcp port 80\"\n"
		bad     = "[[filter.set]]\nname = \"bad\"\n"
		protect = "[[filter.protect]]\naddress = \"192.0.2.1:80\"\n"
	)
	long := strings.Repeat(" or udp port 54", 10)
	for _, tt := range []struct {
		was, is string
		want    []string
	}{
		{dns + web + bad + protect, dns + web + bad + protect, nil},
		{dns + web, web + dns, []string{"rules in another order: web, dns"}},
		{dns, strings.Replace(dns, "1kpps", "2kpps", 1), []string{"rule dns: rate 1kpps → 2kpps"}},
		{dns, strings.Replace(dns, "rate = \"1kpps\"", "rate = \"1kpps\"\nper = \"src/24\"\nburst = 20\nentries = 9000\ninterfaces = \"b\"\nsrc = \"@bad\"", 1) + bad, []string{
			"rule dns: per none → src/24", "rule dns: burst none → 20", "rule dns: entries none → 9000", "rule dns: interfaces none → b",
			"rule dns: src none → @bad", "set bad added",
		}},
		{dns + web, strings.Replace(web, "80", "81", 1), []string{"rule web: expression tcp port 80 → tcp port 81", "rule dns removed"}},
		{web, strings.Replace(web, "80", "80"+long, 1), []string{"rule web: expression changed"}},
		{web, strings.Replace(web, "count", "drop", 1), []string{"rule web: action count → drop"}},
		{dns, strings.Replace(strings.Replace(dns, "limit", "drop", 1), "rate = \"1kpps\"\n", "", 1), []string{"rule dns: action limit → drop", "rule dns: rate 1kpps → none"}},
		{bad + "entries = [\"192.0.2.1\", \"192.0.2.9\"]\n", bad + "entries = [\"192.0.2.9\", \"198.51.100.0/24\", \"2001:db8::/32\", \"203.0.113.7\"]\n",
			[]string{"set bad: 3 prefixes added, 1 removed"}},
		{bad + "entries = [\"192.0.2.1\", \"192.0.2.9\"]\n", bad + "entries = [\"192.0.2.9\"]\ntimeout = \"1h\"\n", []string{"set bad: 1 prefix removed"}},
		{bad + "entries = [\"192.0.2.1\"]\n", bad, []string{"set bad: the file has its entries no more: they stay, and are changed by hand"}},
		{bad, bad + "entries = [\"192.0.2.1\"]\n", []string{"set bad: 1 prefix added"}},
		{bad + "entries = [\"192.0.2.1\"]\n", bad + "type = \"endpoint\"\nentries = [\"192.0.2.1:80\", \"192.0.2.1:81\"]\n", []string{
			"set bad: type prefix → endpoint", "set bad: 2 endpoints added",
		}},
		{bad + "type = \"endpoint\"\nentries = [\"192.0.2.1:80\"]\n", bad + "type = \"endpoint\"\nentries = [\"192.0.2.1:81\"]\n", []string{"set bad: 1 endpoint added, 1 removed"}},
		{protect, strings.Replace(protect, "2.1", "2.2", 1), []string{"protected service 192.0.2.2:80 added", "protected service 192.0.2.1:80 removed"}},
		{protect, protect + "forwarded = true\nmss = 1400\nwscale = 4\n", []string{
			"protected service 192.0.2.1:80: forwarded false → true", "protected service 192.0.2.1:80: mss none → 1400",
			"protected service 192.0.2.1:80: wscale none → 4",
		}},
		{dns, "", []string{"rule dns removed"}},
	} {
		if got := compile(t, tt.is).Changes(compile(t, tt.was), nil); !slices.Equal(got, tt.want) {
			t.Errorf("%q after %q:\n%s\nwant:\n%s", tt.is, tt.was, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
		}
	}
	if got := compile(t, dns).Changes(nil, nil); !slices.Equal(got, []string{"rule dns added"}) {
		t.Errorf("after nothing: %q", got)
	}
}
