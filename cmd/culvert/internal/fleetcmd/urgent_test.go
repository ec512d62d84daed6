// SPDX-License-Identifier: Apache-2.0

package fleetcmd

import (
	"encoding/json"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/cmd/culvert/internal/filtercmd"
	"culvert/cmd/culvert/internal/lbcmd"
	"culvert/internal/edit"
)

// taken is a runner that keeps the request instead of carrying it out.
type taken struct{ request edit.Request }

func (t *taken) Run(_ *cobra.Command, q edit.Request) error {
	t.request = q
	return nil
}

// requestOf returns the request that a command line makes, and the words of its verb.
func requestOf(t *testing.T, line []string) (string, []byte) {
	t.Helper()
	var kept taken
	changing := func(*cobra.Command, func() []string) cli.Runner { return &kept }
	rules, sets := filtercmd.Urgent(changing)
	filter, root := group("filter", "", rules), group("culvert", "", nil)
	filter.AddCommand(group("set", "", sets))
	root.AddCommand(filter, group("lb", "", lbcmd.Urgent(changing)))
	root.SetArgs(line)
	if err := root.Execute(); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	request, err := json.Marshal(kept.request)
	if err != nil {
		t.Fatal(err)
	}
	return edit.WordsOf(kept.request), request
}

// TestCommandLine has the command line that 'culvert fleet urgent' shows make the same request again, in a shell.
func TestCommandLine(t *testing.T) {
	seen := make(map[string]bool)
	for _, line := range [][]string{
		{"filter", "add", "--name", "ntp", "-i", "eth0", "-i", "eth1", "drop", "udp port 123 and less 128"},
		{"filter", "add", "limit", "1kpps", "--per", "src/24,48", "--burst", "64", "--entries", "1000", "udp"},
		{"filter", "add", "--src", "@bad", "--src", "!@good", "--first", "drop", "--all"},
		{"filter", "add", "--name", "a", "--before", "b", "count", "host 192.0.2.1 or it's"},
		{"filter", "del", "ntp", "b"},
		{"filter", "protect", "192.0.2.1:443", "--forwarded", "--mss", "1400"},
		{"filter", "unprotect", "192.0.2.1:443"},
		{"filter", "set", "add", "bad", "192.0.2.0/24", "2001:db8::7", "--timeout", "10m"},
		{"filter", "set", "del", "bad", "192.0.2.0/24"},
		{"lb", "vip", "add", "[2001:db8::1]:443/udp", "--encap", "gue", "--quic-server-id", "2", "--vlans", "100,200"},
		{"lb", "vip", "set", "192.0.2.1:80/tcp", "--check", "http", "--check-path", "/a b", "--check-interval", "2s", "--on-failure", "move"},
		{"lb", "vip", "set", "192.0.2.1:80", "--vlans", "none"},
		{"lb", "vip", "del", "192.0.2.1:80/tcp"},
		{"lb", "backend", "add", "192.0.2.1:80/tcp", "10.0.0.11", "--weight", "0", "--gue-port", "6081"},
		{"lb", "backend", "set", "192.0.2.1:80/tcp", "10.0.0.11", "--encap", "l2", "--server-id", "0a"},
		{"lb", "backend", "del", "192.0.2.1:80/tcp", "10.0.0.11"},
		{"lb", "drain", "192.0.2.1:80/tcp", "10.0.0.11"},
		{"lb", "undrain", "192.0.2.1:80/tcp"},
	} {
		words, request := requestOf(t, line)
		seen[words] = true
		said := edit.CommandLine(words, request)
		out, err := exec.Command("/bin/sh", "-c", "printf '%s\\n' "+said).Output()
		if err != nil {
			t.Fatalf("sh, %s: %v", said, err)
		}
		again, same := requestOf(t, strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"))
		if again != words || !reflect.DeepEqual(same, request) {
			t.Errorf("%q is shown as %s, which is %s, want %s", line, said, same, request)
		}
	}
	for _, v := range edit.Verbs() { // those that a fleet does not have are not shown to its people
		if !seen[v.Words] && !slices.Contains([]string{"filter flush", "filter set replace", "key add", "key del"}, v.Words) {
			t.Errorf("no command line of %s is tried", v.Words)
		}
	}
}

// TestCommandLineLong shows the beginning of what is long, and what is no request as it is.
func TestCommandLineLong(t *testing.T) {
	for _, c := range []struct{ words, request, want string }{
		{"filter set add", `{"set":"bad","entries":["1","2","3","4","5","6","7","8","9","10"]}`, "filter set add bad 1 2 3 4 5 6 7 8 (and 2 more)"},
		{"filter set add", `{"set":"bad","text":"192.0.2.1\n","text_name":"bad.txt"}`, "filter set add bad (10 bytes) --file bad.txt"},
		{"filter add", `{"action":"drop","expression":"` + strings.Repeat("x", 300) + `"}`, "filter add drop '" + strings.Repeat("x", 200) + "... (300 bytes)'"},
		{"filter add", "no JSON", "filter add no JSON"},
		{"filter add", "", "filter add"},
	} {
		if got := edit.CommandLine(c.words, []byte(c.request)); got != c.want {
			t.Errorf("%s %s is shown as %q, want %q", c.words, c.request, got, c.want)
		}
	}
}
