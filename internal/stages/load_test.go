// SPDX-License-Identifier: Apache-2.0

package stages

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"culvert/internal/config"
	"culvert/internal/filter/filterstage"
	"culvert/internal/lb/lbstage"
	"culvert/internal/route/routestage"
	"culvert/internal/scion"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "culvert.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// table returns a table of a file, nil if the file does not have it.
func table[T config.Table](n *config.Node, name string) T {
	t, _ := n.Tables[name].(T)
	return t
}

func router(n *config.Node) *scion.Table        { return table[*scion.Table](n, "scion") }
func ipRouter(n *config.Node) *routestage.Table { return table[*routestage.Table](n, "route") }

func TestLoadSCION(t *testing.T) {
	path := write(t, "mode = \"generic\"\ninterfaces = [\"a\", \"b\"]\n[scion]\nconfig = \"br.toml\"\nbfd_min_ttl = 64\n")
	n, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if n.Mode != config.ModeGeneric || len(n.Interfaces) != 2 || router(n).BFDMinTTL != 64 {
		t.Errorf("got %+v", n)
	}
	if want := filepath.Join(filepath.Dir(path), "br.toml"); router(n).Config != want {
		t.Errorf("scion.config is %s, want %s", router(n).Config, want)
	}
}

func TestModeDefaultsToNative(t *testing.T) {
	n, err := Load(write(t, "[scion]\nconfig = \"/etc/br.toml\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if n.Mode != config.ModeNative || router(n).Config != "/etc/br.toml" {
		t.Errorf("got %+v %+v", n, router(n))
	}
}

func TestLinkInterfaces(t *testing.T) {
	for text, loose := range map[string]bool{
		"":                               false,
		"link_interfaces = \"strict\"\n": false,
		"link_interfaces = \"loose\"\n":  true,
	} {
		n, err := Load(write(t, "[scion]\nconfig = \"/etc/br.toml\"\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		if router(n).Loose() != loose {
			t.Errorf("%q: loose %v", text, !loose)
		}
	}
}

const (
	lbHead     = "interfaces = [\"a\"]\n[lb]\n"
	lbVIP      = "[[lb.vip]]\naddress = \"192.0.2.1:80\"\nprotocol = \"tcp\"\n"
	lbBackend  = "[[lb.vip.backend]]\naddress = \"10.0.0.11\"\n"
	lbBGP      = "[lb.bgp]\nasn = 65001\nrouter_id = \"10.0.0.1\"\n"
	filterHead = "interfaces = [\"a\"]\n"
	drop       = "[[filter.rule]]\nname = \"a\"\naction = \"drop\"\n"
)

// TestErrorPositions wants each error in one line, with line and column in front if it has a position.
func TestErrorPositions(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"not TOML", "mode = \n", ":1:"},
		{"an interface that is no list", "interfaces = \"to-a\"\n[route]\n", ":1:14: interfaces: want a list, found string"},
		{"wrong type", "[scion]\nconfig = 3\n", ":2:10: scion.config: want text in quotes, found integer"},
		{"unknown key", "[scion]\nconfig = \"x\"\nturbo = true\n", ":3:1: unknown key \"scion.turbo\""},
		{"TTL too large", "[scion]\nconfig = \"x\"\nbfd_min_ttl = 256\n", ":3:15: scion.bfd_min_ttl = 256: use 1 to 255"},
		{"unknown table", "[scion]\nconfig = \"x\"\n[warp]\n", "unknown key \"warp\""},
		{"unknown mode", "mode = \"offload\"\n[scion]\nconfig = \"x\"\n", "mode = \"offload\": use"},
		{"neither answer nor fragment", "[scion]\nconfig = \"x\"\ntoo_big = \"drop\"\n", "scion.too_big = \"drop\": use \"fragment\" or \"answer\""},
		{"neither strict nor loose", "[scion]\nconfig = \"x\"\nlink_interfaces = \"any\"\n", "scion.link_interfaces = \"any\": use"},
		{"word without quotes in a list", "interfaces = [eth1, 'eth2']\n[route]\n", ":1:15: eth1 is not quoted: write \"eth1\""},
		{"word without quotes", "interfaces = ['a']\n[lb]\n[[lb.vip]]\naddress = 192.0.2.1:80\n", ":4:16: 192.0.2.1:80 is not quoted: write \"192.0.2.1:80\""},
		{"no such CPU", "[workers]\ncpus = \"4095\"\n[scion]\nconfig = \"x\"\n", ":2:8: workers.cpus: CPU 4095 is not online: there are "},
		{"no such CPU in a list", "[scion]\nconfig = \"x\"\n[workers]\ncpus = [0, 4095]\n", ":4:1: workers.cpus: CPU 4095 is not online"},
		{"CPU twice", "[workers]\ncpus = \"0,0\"\n[scion]\nconfig = \"x\"\n", ":2:8: workers.cpus: CPU 0 is given twice"},
		{"empty list of CPUs", "[workers]\ncpus = []\n[scion]\nconfig = \"x\"\n", ":2:1: workers.cpus: the list of CPUs is empty"},
		{"empty string of CPUs", "[workers]\ncpus = \"\"\n[scion]\nconfig = \"x\"\n", ":2:8: workers.cpus: the list of CPUs is empty"},
		{"no CPU list", "[workers]\ncpus = \"all\"\n[scion]\nconfig = \"x\"\n", ":2:8: workers.cpus: \"all\" is no list of CPUs"},
		{"CPUs backwards", "[workers]\ncpus = \"3-1\"\n[scion]\nconfig = \"x\"\n", ":2:8: workers.cpus: \"3-1\" is no list of CPUs"},
		{"CPUs of the wrong type", "[workers]\ncpus = true\n[scion]\nconfig = \"x\"\n", ":2:8: \"true\" is no list of CPUs"},
		{"CPUs missing", "[workers]\nqueue = 64\n[scion]\nconfig = \"x\"\n", "workers.cpus is missing"},
		{"queue too long", "[workers]\ncpus = \"0\"\nqueue = 16385\n[scion]\nconfig = \"x\"\n", ":3:9: workers.queue = 16385: use 1 to 16384"},
		{"queue of 0", "[scion]\nconfig = \"x\"\n[workers]\ncpus = \"0\"\nqueue = 0\n", ":5:9: workers.queue = 0: use 1 to 16384"},
		{"unknown key of workers", "[workers]\ncpus = \"0\"\nthreads = 2\n[scion]\nconfig = \"x\"\n", ":3:1: unknown key \"workers.threads\""},
		{"no stage", "", "no stage is on"},
		{"the reference router's file", "[general]\nid = \"br1\"\nconfig_dir = \"/etc/scion\"\n[metrics]\nprometheus = \"127.0.0.1:30442\"\n",
			"culvert.toml looks like the reference router's own file: run it with 'culvert scion run -c "},
		{"no interfaces", "[route]\n", "interfaces is missing"},
		{"interface twice", "interfaces = [\"a\", \"b\", \"a\"]\n[route]\n", ":1:25: interfaces names a twice"},
		{"unknown mode of an IP router", "mode = \"fast\"\n[route]\n", ":1:8: mode = \"fast\": use"},
		{"unknown key of route", "interfaces = [\"a\"]\n[route]\nturbo = 1\n", ":3:1: unknown key \"route.turbo\""},
		{"too many blocks", "interfaces = [\"a\"]\n[route]\nblocks4 = 99999999\n", ":3:11: route.blocks4 = 99999999: use 1 to 8388608"},
		{"0 blocks", "interfaces = [\"a\"]\n[route]\nblocks6 = 0\n", ":3:11: route.blocks6 = 0: use 1 to"},
		{"blocks without a mirror", "interfaces = [\"a\"]\n[route]\nmirror = false\nblocks6 = 9\n", ":4:11: route.blocks6 without a mirror"},
		{"name with a slash", "name = \"a/b\"\ninterfaces = [\"a\"]\n[route]\n", ":1:8: name = \"a/b\": leave out"},
		{"metrics without a colon", "metrics = \"9441\"\ninterfaces = [\"a\"]\n[route]\n", ":1:11: metrics = \"9441\": use address:port"},
		{"a page without an address", "interfaces = [\"a\"]\n[route]\n[web]\n", ":3:2: [web] has no listen"},
		{"a page without a colon", "interfaces = [\"a\"]\n[route]\n[web]\nlisten = \"9480\"\n", ":4:10: listen = \"9480\": use address:port"},
		{"a page without a port", "interfaces = [\"a\"]\n[route]\n[web]\nlisten = \"127.0.0.1:\"\n", ":4:10: listen = \"127.0.0.1:\": use address:port"},
		{"a page at a named port", "interfaces = [\"a\"]\n[route]\n[web]\nlisten = \"127.0.0.1:http\"\n", ":4:10: listen = \"127.0.0.1:http\": use address:port"},
		{"a page at too large a port", "interfaces = [\"a\"]\n[route]\n[web]\nlisten = \":99999\"\n", ":4:10: listen = \":99999\": use address:port"},
		{"a page at any port", "interfaces = [\"a\"]\n[route]\n[web]\nlisten = \"127.0.0.1:0\"\n",
			":4:10: listen = \"127.0.0.1:0\": port 0 is any that is free, so nobody would know where the page is: name one, such as 9480"},
		{"a page where metrics are", "metrics = \":9441\"\ninterfaces = [\"a\"]\n[route]\n[web]\nlisten = \"127.0.0.1:9441\"\n",
			":5:10: listen = \"127.0.0.1:9441\" is the address of metrics = \":9441\": use another port"},
		{"unknown key of web", "interfaces = [\"a\"]\n[route]\n[web]\nport = 9480\n", ":4:1: unknown key \"web.port\""},
		{"web as text", "web = \":9480\"\ninterfaces = [\"a\"]\n[route]\n", ":1:7: web: want a table"},
		{"metrics beside a SCION router", "metrics = \":9441\"\n[scion]\nconfig = \"x\"\n", ":1:11: metrics = \":9441\" beside [scion]"},
		{"SCION router without a file", "[scion]\n", "scion.config is missing"},
		{"filter without interfaces", "[filter]\n", "interfaces is missing"},
		{"unknown key of filter", "interfaces = [\"a\"]\n[filter]\nturbo = 1\n", ":3:1: unknown key \"filter.turbo\""},
		{"unknown key of a rule", filterHead + "[[filter.rule]]\nname = \"a\"\nport = 1\n", ":4:1: unknown key \"filter.rule.port\""},
		{"rule without a name", filterHead + "[[filter.rule]]\naction = \"drop\"\n", ":2:3: name is missing"},
		{"rule without an action", filterHead + "[[filter.rule]]\nname = \"a\"\n", ":2:3: rule a: action is missing"},
		{"second rule", filterHead + drop + "[[filter.rule]]\naction = \"drop\"\nname = \"a\"\n", ":7:8: a second rule a"},
		{"two expressions", filterHead + drop + "expression = \"icmp\"\nprogram = \"x\"\n", ":6:11: rule a: program beside expression"},
		{"empty interface", filterHead + drop + "interfaces = [\"\"]\n", ":5:1: rule a: interfaces has an empty name"},
		{"rate of the wrong type", filterHead + drop + "per = 3\n", ":5:7: filter.rule.per: want text in quotes, found integer"},
		{"rules that are no tables", "interfaces = [\"a\"]\n[filter]\nrule = 3\n", ":3:8: filter.rule: want a list, found integer"},
		{"inline rules", "interfaces = [\"a\"]\n[filter]\nrule = [{name=\"a\"}]\n", ":3:1: rule a: action is missing"},
		{"set without a name", filterHead + "[[filter.set]]\nfile = \"x\"\n", ":2:3: name is missing"},
		{"set of another type", filterHead + "[[filter.set]]\nname = \"s\"\ntype = \"mac\"\n", ":4:8: set s: type = \"mac\": use"},
		{"second set", filterHead + "[[filter.set]]\nname = \"s\"\n[[filter.set]]\nname = \"s\"\n", ":5:8: a second set s"},
		{"file and entries", filterHead + "[[filter.set]]\nname = \"s\"\nfile = \"x\"\nentries = []\n", ":5:1: set s: entries beside file"},
		{"timeout without entries from packets", filterHead + "[[filter.set]]\nname = \"s\"\ntimeout = \"1h\"\n", ":4:11: set s: timeout without"},
		{"lb without interfaces", "[lb]\n", "interfaces is missing"},
		{"unknown key of lb", lbHead + "turbo = 1\n", ":3:1: unknown key \"lb.turbo\""},
		{"unknown key of a VIP", lbHead + lbVIP + "port = 1\n", ":6:1: unknown key \"lb.vip.port\""},
		{"unknown key of a backend", lbHead + lbVIP + lbBackend + "name = \"x\"\n", ":8:1: unknown key \"lb.vip.backend.name\""},
		{"unknown key of a check", lbHead + lbVIP + "[lb.vip.check]\nevery = \"1s\"\n", ":7:1: unknown key \"lb.vip.check.every\""},
		{"ring that is no prime", lbHead + "ring_size = 65536\n", ":3:13: ring_size = 65536: use a prime"},
		{"time without a unit", lbHead + "udp_timeout = 3\n", ":3:15: lb.udp_timeout: want text in quotes, found integer"},
		{"VIP without an address", lbHead + "[[lb.vip]]\nprotocol = \"tcp\"\n", ":3:3: address is missing"},
		{"VIP without a protocol", lbHead + lbVIP + "[[lb.vip]]\naddress = \"192.0.2.2\"\n", ":6:3: VIP 192.0.2.2: protocol is missing"},
		{"backend without an address", lbHead + lbVIP + lbBackend + lbVIP + lbBackend + "[[lb.vip.backend]]\n",
			":13:3: VIP 192.0.2.1:80/tcp: a backend's address is missing"},
		{"inline backends", lbHead + lbVIP + "backend = [{address = \"10.0.0.11\"}, {weight = 2}]\n", ":6:1: VIP 192.0.2.1:80/tcp: a backend's"},
		{"GUE port too large", lbHead + lbVIP + lbBackend + "gue_port = 70000\n", ":8:12: lb.vip.backend.gue_port: 70000 is out of range"},
		{"BGP without an AS", lbHead + "[lb.bgp]\nrouter_id = \"10.0.0.1\"\n", ":3:2: lb.bgp.asn is missing"},
		{"BGP without a router ID", lbHead + "[lb.bgp]\nasn = 65001\nrouter_id = \"fd00::1\"\n", ":5:13: lb.bgp.router_id is missing or no IPv4"},
		{"BGP without neighbors", lbHead + lbBGP, ":3:2: lb.bgp has no neighbor"},
		{"neighbor without an address", lbHead + lbBGP + "[[lb.bgp.neighbor]]\nasn = 65000\n", ":6:3: address of the neighbor is missing"},
		{"neighbor without an AS", lbHead + lbBGP + "[[lb.bgp.neighbor]]\naddress = \"10.0.0.9\"\n", ":6:3: neighbor 10.0.0.9: asn is missing"},
		{"protected service without an address", filterHead + "[[filter.protect]]\nforwarded = true\n", ":2:3: address is missing"},
		{"mss too large", filterHead + "[[filter.protect]]\naddress = \"a\"\nmss = 70000\n", ":4:7: filter.protect.mss: 70000 is out of range: use 0 to 65535"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load(write(t, tt.text))
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error is %q, want one line with %q", err, tt.want)
			}
		})
	}
}

func TestWorkers(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "[] 0",
		"[workers]\ncpus = \"0\"\n":      "[0] 0",
		"[workers]\ncpus = [0]\n":        "[0] 0",
		"workers.cpus = \"0-0\"\n":       "[0] 0",
		"workers = {cpus=\"0\",queue=9}": "[0] 9",
	} {
		n, err := Load(write(t, text+"\n[scion]\nconfig = \"x\"\n"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := fmt.Sprint(n.Workers.CPUNumbers(), n.Workers.QueueLen()); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestRoute(t *testing.T) {
	n, err := Load(write(t, "interfaces = [\"a\"]\n[route]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if router(n) != nil || n.Name != config.DefaultName || !ipRouter(n).MirrorOn() || ipRouter(n).BypassNetfilter {
		t.Errorf("got %+v %+v", n, ipRouter(n))
	}
	n, err = Load(write(t, "name = \"edge\"\nmetrics = \"127.0.0.1:9441\"\ninterfaces = [\"a\"]\n"+
		"[route]\nbypass_netfilter = true\nmirror = false\n"))
	if err != nil {
		t.Fatal(err)
	}
	if n.Name != "edge" || n.Metrics != "127.0.0.1:9441" || ipRouter(n).MirrorOn() || !ipRouter(n).BypassNetfilter {
		t.Errorf("got %+v %+v", n, ipRouter(n))
	}
}

func TestFilter(t *testing.T) {
	path := write(t, filterHead+drop+"src = \"@bad\"\ninterfaces = [\"a\", \"b\"]\nburst = 200\n"+
		"[[filter.rule]]\nname = \"b\"\naction = \"limit\"\nprogram = \"b.ddd\"\nrate = \"9pps\"\nburst = \"64kB\"\n"+
		"[[filter.set]]\nname = \"bad\"\nfile = \"/bad.txt\"\n[[filter.protect]]\naddress = \"192.0.2.1:80\"\n")
	n, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	f := table[*filterstage.Table](n, "filter")
	if len(f.Rules) != 2 || len(f.Sets) != 1 || len(f.Services) != 1 || router(n) != nil || n.Name != config.DefaultName {
		t.Fatalf("got %+v %+v", n, f)
	}
	got := fmt.Sprint(f.Rules[0].Src, f.Rules[0].Interfaces, f.Rules[0].Burst, " ", f.Rules[1].Rate, f.Rules[1].Burst, f.Sets[0].File)
	if want := "[@bad] [a b]200 9pps64kB/bad.txt"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if want := filepath.Join(filepath.Dir(path), "b.ddd"); f.Rules[1].Program != want {
		t.Errorf("program is %s, want %s", f.Rules[1].Program, want)
	}
	for key, want := range map[string]string{"rate": ":12:8: x", "burst": ":13:9: x", "per": ":8:3: x", "": ":8:3: x"} {
		if err := f.Rules[1].Locate(key, fmt.Errorf("x")); err.Error() != path+want {
			t.Errorf("%s is at %v, want %s", key, err, want)
		}
	}
	if own, err := IsNode(path); !own || err != nil {
		t.Errorf("IsNode: %t, %v", own, err)
	}
}

func TestLB(t *testing.T) {
	path := write(t, lbHead+"flows = 5\nudp_timeout = \"90s\"\n"+lbVIP+"[lb.vip.check]\ntype = \"http\"\nrise = 3\n"+lbBackend+lbBackend+
		"weight = 0\nencapsulation = \"gue\"\n"+lbVIP+lbBackend+lbBGP+"[[lb.bgp.neighbor]]\naddress = \"10.0.0.9\"\nasn = 65000\n")
	n, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	b := table[*lbstage.Table](n, "lb")
	if n.Name != config.DefaultName || b.Flows != 5 || b.UDPTimeout != "90s" || b.Seed != "" || len(b.VIP) != 2 ||
		len(b.VIP[0].Backend) != 2 || *b.VIP[0].Check.Rise != 3 || b.VIP[0].Check.Fall != nil || *b.VIP[0].Backend[1].Weight != 0 ||
		b.BGP.Neighbor[0].ASN != 65000 {
		t.Fatalf("got %+v", b)
	}
	for _, c := range []struct {
		table     config.Locator
		key, want string
	}{
		{b, "flows", ":3:9: x"},
		{b, "source4", ":2:2: x"},
		{b.VIP[0], "hash", ":5:3: x"},
		{b.VIP[0], "check", ":8:2: x"},
		{b.VIP[0].Backend[0], "address", ":12:11: x"},
		{b.VIP[0].Backend[1], "weight", ":15:10: x"},
		{b.VIP[1], "", ":17:3: x"},
		{b.VIP[1].Backend[0], "address", ":21:11: x"},
		{b.BGP, "asn", ":23:7: x"},
	} {
		if err := c.table.Locate(c.key, fmt.Errorf("x")); err.Error() != path+c.want {
			t.Errorf("%T, key %q: %v, want %s", c.table, c.key, err, c.want)
		}
	}
	if own, err := IsNode(path); !own || err != nil {
		t.Errorf("IsNode: %t, %v", own, err)
	}
}

func TestMissingFile(t *testing.T) {
	if _, err := Load("/nonexistent/culvert.toml"); err == nil ||
		!strings.HasPrefix(err.Error(), "reading /nonexistent/culvert.toml: ") {
		t.Errorf("error is %v", err)
	}
}
