// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/base64"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"culvert/internal/datapath"
	"culvert/internal/route/routeview"
	"culvert/internal/testbed"
)

// TestAttachLoopbackOnly has a SCION router whose underlay addresses are all on loopback. There is no interface for a data plane,
// and Attach returns an error.
func TestAttachLoopbackOnly(t *testing.T) {
	testbed.InNamespace(t)
	testbed.IP(t, "link set lo up")
	dir, write := writeFiles(t)
	writeRouter(dir, write, "127.0.0.1:50000", "127.0.0.2:50000")
	if err := os.Mkdir(filepath.Join(dir, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join("keys", "master0.key"), base64.StdEncoding.EncodeToString(make([]byte, 16)))
	path := write("culvert.toml", "[scion]\nconfig = \"br.toml\"\n")
	var out bytes.Buffer
	err := Attach(t.Context(), path, nil, &out)
	want := path + ": all underlay addresses of router br1 are on loopback, so there is no interface to attach to: use culvert run -c " + path
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if out.Len() > 0 {
		t.Errorf("wrote %q", out.String())
	}
	want = path + ": no stage has an interface to attach to: name interfaces"
	if _, err := AttachTemporary(t.Context(), path, nil); err == nil || err.Error() != want {
		t.Errorf("temporary: error %v, want %s", err, want)
	}
	if all, err := datapath.ListHere(); len(all) > 0 || err != nil {
		t.Errorf("%d data planes, %v", len(all), err)
	}
}

// TestTemporaryLB wants a temporary data plane with a load balancer to be refused.
func TestTemporaryLB(t *testing.T) {
	_, write := writeFiles(t)
	path := write("culvert.toml", "interfaces = [\"nd0\"]\n[lb]\nseed = \"x\"\n")
	want := path + ": [lb] needs a data plane that is not temporary: take it out"
	if _, err := AttachTemporary(t.Context(), path, []string{"nd0"}); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestBeforeRoute wants 'culvert route get' to name the stages that may decide about a packet before the IP router does: the load
// balancer for the address of a VIP, and the filter for every address once it has a rule.
func TestBeforeRoute(t *testing.T) {
	const (
		file = `interfaces = ["nd0"]
[route]
blocks4 = 1
blocks6 = 1
[lb]
seed = "x"
[[lb.vip]]
address = "192.0.2.1:80"
protocol = "tcp"
[[lb.vip]]
address = "192.0.2.1:443"
protocol = "tcp"
[[lb.vip]]
address = "[2001:db8::1]:53"
protocol = "udp"
`
		rule = `[[filter.rule]]
name = "r"
action = "count"
expression = "icmp"
`
		filterLine = "not asked: the filter in front with 1 rule, see 'culvert filter test'\n"
		vip4Line   = "not asked: the load balancer, which has VIP 192.0.2.1:80/tcp, see 'culvert lb explain'\n"
		vip6Line   = "not asked: the load balancer, which has VIP [2001:db8::1]:53/udp, see 'culvert lb explain'\n"
	)
	for _, tt := range []struct{ name, file, to, want string }{
		{"address of two VIPs", file, "192.0.2.1", vip4Line},
		{"address of an IPv6 VIP", file, "2001:db8::1", vip6Line},
		{"no VIP's address", file, "192.0.2.2", ""},
		{"VIP behind a filter", file + rule, "192.0.2.1", filterLine + vip4Line},
		{"no VIP's address behind a filter", file + rule, "10.0.0.9", filterLine},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testbed.InNamespace(t)
			testbed.AddVeth(t, "nd0", "nd1")
			testbed.IP(t, "addr add 10.0.0.1/24 dev nd0")
			_, write := writeFiles(t)
			if err := Attach(t.Context(), write("c.toml", tt.file), nil, &bytes.Buffer{}); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := DetachAll(&bytes.Buffer{}); err != nil {
					t.Error(err)
				}
			}()
			var out strings.Builder
			o := routeview.GetOptions{To: netip.MustParseAddr(tt.to), NotAsked: BeforeRoute}
			if err := routeview.Get(o, false, &out); err != nil {
				t.Fatal(err)
			}
			var got string
			for line := range strings.Lines(out.String()) {
				if strings.HasPrefix(line, "not asked: ") {
					got += line
				}
			}
			if got != tt.want {
				t.Errorf("got %q, want %q, in\n%s", got, tt.want, &out)
			}
		})
	}
}
