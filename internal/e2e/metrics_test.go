// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"

	"culvert/internal/cluster/access"
	"culvert/internal/lab"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/testbed"
)

// measured is a process with all stages, and packets for all of them.
type measured struct {
	*routed
	// addr is where it serves its metrics.
	addr string
}

// allStages is a configuration with something of everything that has metrics, with the SCION router's own file and its
// key.
const allStages = `interfaces = ['to-a', 'to-b']
[workers]
cpus = [0]
[sflow]
collector = "127.0.0.1:6343"
rate = 10
drops = 10
[web]
listen = '127.0.0.1:9480'
[cluster]
name = 'edge'
endpoints = ['https://127.0.0.1:1'] # nobody there
node = 'n1'
state_dir = '%[3]s/state'
tls = {ca = '%[3]s/ca.pem', cert = '%[3]s/n1.pem', key = '%[3]s/n1-key.pem'}
[scion]
config = '%[1]s'
[[scion.key]]
file = '%[2]s'
not_after = 2099-01-01T00:00:00Z
` + smallRoute + `
[filter]
[[filter.set]]
name = 'bad'
entries = ['192.0.2.0/24', '2001:db8:bad::/48']
[[filter.set]]
name = 'web'
type = 'endpoint'
entries = ['203.0.113.9:80']
[[filter.rule]]
name = 'bad'
action = 'drop'
src = '@bad'
[[filter.rule]]
name = 'dns'
action = 'limit'
rate = '10pps'
per = 'src'
expression = 'udp dst port 53'
[[filter.rule]]
name = 'bulk'
action = 'limit'
rate = '10MB/s'
expression = 'udp dst port 54'
[[filter.protect]]
address = '198.18.1.1:80'
[lb]
flows = 10000
[[lb.vip]]
address = '203.0.113.80:5000'
protocol = 'udp'
[[lb.vip.backend]]
address = '198.18.2.2'
weight = 3
[[lb.vip]]
address = '203.0.113.81:80'
protocol = 'tcp'
[lb.vip.check]
type = 'tcp'
interval = '200ms'
timeout = '50ms'
[[lb.vip.backend]]
address = '198.18.20.2'
[[lb.vip]]
address = '203.0.113.82:5000'
protocol = 'udp'
[[lb.vip.source]]
kind = 'file'
file = '%[5]s'
[lb.bgp]
asn = 65001
router_id = '198.18.2.1'
[[lb.bgp.neighbor]]
address = '198.18.2.2'
asn = 65000
[lb.peers]
listen = '198.18.2.1:9482'
peers = ['198.18.2.2:9482']
key_file = '%[4]s'
`

// birdNeighbor is the configuration of the BGP neighbor.
const birdNeighbor = `router id 198.18.2.2;
protocol device {}
protocol bgp culvert {
	local 198.18.2.2 as 65000;
	neighbor 198.18.2.1 as 65001;
	passive on;
	ipv4 { import all; export none; };
}
`

// newMeasured starts the process, and packets that come in by to-a. BFD is on for the link that they come in by, and for the
// sibling; nobody answers.
func newMeasured(t *testing.T) *measured {
	t.Helper()
	r := newRouted(t, "met", lab.Options{})
	as, err := r.lab.AS("rut")
	check(t, err)
	change(t, as.RouterConfig, "disable = true", "disable = false")
	change(t, filepath.Join(as.ConfigDir, "topology.json"), `"disable": true`, `"disable": false`)
	bird := filepath.Join(t.TempDir(), "bird.conf")
	check(t, os.WriteFile(bird, []byte(birdNeighbor), 0o600))
	start(t, r.lab, "b", "bird", "-f", "-c", bird, "-s", filepath.Join(t.TempDir(), "bird.ctl"))
	m := &measured{r, as.RouterAPI.String()}
	peers := filepath.Join(t.TempDir(), "peers.key")
	check(t, os.WriteFile(peers, []byte(strings.Repeat("k", 32)), 0o600))
	backends := filepath.Join(t.TempDir(), "backends")
	check(t, os.WriteFile(backends, []byte("198.18.2.2\n"), 0o600))
	serveRoute(t, r.lab, routeFile(t, fmt.Sprintf(allStages, as.RouterConfig, filepath.Join(as.Keys, "master0.key"), nodeCertificate(t), peers, backends)))
	r.command("sysctl", "-qw", "net.ipv4.tcp_syncookies=2")
	check(t, r.lab.Do("rut", func() error { // the protected service
		service, err := net.Listen("tcp", "198.18.1.1:80")
		if err == nil {
			t.Cleanup(func() { _ = service.Close() })
		}
		return err
	}))
	scion := func(key string) []byte {
		return frames(t, r.lab, "rut", r.from, r.into, scionpkt.GenerateOptions{Sizes: []int{streamSize}, Ingress: 1, Egress: 2, Key: key})[0]
	}
	m.trickle(
		r.streams[0].frame, r.streams[1].frame, r.stream(src4, "203.0.113.80", 0).frame, r.stream("192.0.2.7", dst4, 0).frame,
		m.udp(53), m.udp(54), m.syn(), scion(""), scion(base64.StdEncoding.EncodeToString(make([]byte, 16))),
	)
	return m
}

// nodeCertificate returns a directory with ca.pem, n1.pem and n1-key.pem.
func nodeCertificate(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "edge")
	a, err := access.Init(dir, "edge")
	check(t, err)
	_, err = a.Issue(dir, "n1", access.NewUser(access.KindNode, "n1").String(), nil)
	check(t, err)
	return dir
}

// change replaces the first occurrence of a text in a file.
func change(t *testing.T, path, from, to string) {
	t.Helper()
	text, err := os.ReadFile(path)
	check(t, err)
	if !bytes.Contains(text, []byte(from)) {
		t.Fatalf("%s does not have %s:\n%s", path, from, text)
	}
	check(t, os.WriteFile(path, bytes.Replace(text, []byte(from), []byte(to), 1), 0o600))
}

// udp returns a frame to a port behind the router, syn one that opens a connection to the protected service.
func (m *measured) udp(port uint16) []byte {
	return m.frame(dst4, layers.IPProtocolUDP, func(ip *layers.IPv4) gopacket.SerializableLayer {
		udp := &layers.UDP{SrcPort: 4000, DstPort: layers.UDPPort(port)}
		check(m.t, udp.SetNetworkLayerForChecksum(ip))
		return udp
	})
}

func (m *measured) syn() []byte {
	return m.frame("198.18.1.1", layers.IPProtocolTCP, func(ip *layers.IPv4) gopacket.SerializableLayer {
		tcp := &layers.TCP{SrcPort: 4000, DstPort: 80, SYN: true, Window: 1000}
		check(m.t, tcp.SetNetworkLayerForChecksum(ip))
		return tcp
	})
}

func (m *measured) frame(dst string, protocol layers.IPProtocol, transport func(*layers.IPv4) gopacket.SerializableLayer) []byte {
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, SrcIP: net.ParseIP(src4), DstIP: net.ParseIP(dst)}
	out := gopacket.NewSerializeBuffer()
	check(m.t, gopacket.SerializeLayers(out, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: m.from.MAC, DstMAC: m.into.MAC, EthernetType: layers.EthernetTypeIPv4}, ip, transport(ip)))
	return out.Bytes()
}

// trickle sends the frames from a again and again until the test ends.
func (m *measured) trickle(frames ...[]byte) {
	m.t.Helper()
	fd := packetSocket(m.t, m.from)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer unix.Close(fd)
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for _, f := range frames {
				_, _ = unix.Write(fd, f) // a full queue is no matter
			}
		}
	}()
	m.t.Cleanup(func() { cancel(); <-done })
}

// families returns the metrics of the process, as Prometheus' own parser reads them.
func (m *measured) families() (text []byte, all map[string]*dto.MetricFamily) {
	m.t.Helper()
	text, err := get(m.lab, "rut", m.addr, "/metrics")
	check(m.t, err)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err = parser.TextToMetricFamilies(bytes.NewReader(text))
	check(m.t, err)
	return text, all
}

// value returns the value of the only series of a metric with the labels, as "state=up", and whether there is one.
func value(all map[string]*dto.MetricFamily, name string, labels ...string) (float64, bool) {
	for _, s := range all[name].GetMetric() {
		has := func(want string) bool {
			return slices.ContainsFunc(s.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName()+"="+l.GetValue() == want })
		}
		if !slices.ContainsFunc(labels, func(want string) bool { return !has(want) }) {
			return s.GetCounter().GetValue() + s.GetGauge().GetValue(), true
		}
	}
	return 0, false
}

// TestMetrics runs a process with all stages. Its metrics please Prometheus' linter and are those of docs/metrics.md, and a
// Prometheus that scrapes them answers each query of the dashboards and of the rules.
func TestMetrics(t *testing.T) {
	m := newMeasured(t)
	want := func(want float64, name string, labels ...string) {
		t.Helper()
		var got float64
		wait(t, fmt.Sprint(name, labels, " to be ", want), func() bool {
			_, all := m.families()
			var ok bool
			got, ok = value(all, name, labels...)
			return ok && got == want
		})
	}
	const unchecked, checked = "vip=203.0.113.80:5000/udp", "vip=203.0.113.81:80/tcp"
	want(1, "culvert_lb_backend_state", "state=down", checked)
	want(1, "culvert_lb_backend_state", "state=unchecked", unchecked)
	want(0, "culvert_lb_backend_state", "state=up", unchecked)
	want(3, "culvert_lb_backend_weight", unchecked)
	want(1, "culvert_lb_vip_served", unchecked)
	want(0, "culvert_lb_vip_served", checked)
	want(1, "culvert_lb_flow_table_flows")
	want(0, "culvert_lb_peer_up", "peer=198.18.2.2:9482") // nobody is there
	want(1, "culvert_lb_peer_bulk_state", "state=off")
	want(10000, "culvert_lb_flow_table_capacity")
	want(1, "culvert_bgp_session_state", "state=established", "asn=65000", "neighbor=198.18.2.2")
	want(1, "culvert_bgp_prefix_announced_info", "prefix=203.0.113.80/32")
	want(1, "culvert_lb_vip_announced_neighbors", unchecked)
	want(0, "culvert_lb_vip_announced_neighbors", checked)
	want(1, "culvert_route_mirror_state", "family=ipv6", "state=current")
	want(2, "culvert_filter_set_entries", "set=bad", "type=prefix")
	want(1, "culvert_filter_set_entries", "set=web", "type=endpoint")
	want(10, "culvert_filter_rule_limit_packets_per_second", "per=src", "rule=dns")
	want(10e6, "culvert_filter_rule_limit_bytes_per_second", "per=rule", "rule=bulk")
	want(1, "culvert_filter_protected_service_info", "forwarded=false", "service=198.18.1.1:80")
	want(1, "culvert_config_last_reload_successful")
	want(1, "culvert_web_up")
	want(0, "culvert_sflow_collector_up") // nobody listens
	for _, stage := range []string{"filter", "lb", "scion", "route"} {
		want(1, "culvert_stage_state", "state=ready", "stage="+stage)
	}
	for reason, stage := range map[string]string{
		"route": "route", "lb-flow": "lb", "filter": "filter", "filter-limit": "filter", "filter-synack": "filter", "scion-mac": "scion",
		"scion-br-transit": "scion",
	} {
		wait(t, "packets with the reason "+reason, func() bool {
			_, all := m.families()
			got, ok := value(all, "culvert_packets_total", "interface=to-a", "reason="+reason, "stage="+stage)
			return ok && got > 0
		})
	}
	t.Run("documented", m.testDocumented)
	t.Run("queries", m.testQueries)
}

func (m *measured) testDocumented(t *testing.T) {
	text, all := m.families()
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	check(t, err)
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "culvert_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	known, err := testbed.DocumentedMetrics("../../docs/metrics.md")
	check(t, err)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if prefix, _, _ := strings.Cut(name, "_"); !slices.Contains([]string{"culvert", "router", "scion"}, prefix) {
			if !slices.Contains([]string{"go", "process", "promhttp"}, prefix) {
				t.Errorf("docs/metrics.md does not tell of %s", name)
			}
			continue
		}
		f := all[name]
		d, ok := known[name]
		if !ok {
			t.Errorf("docs/metrics.md does not have %s: %s", name, f.GetHelp())
			continue
		}
		delete(known, name)
		if kind := strings.ToLower(f.GetType().String()); kind != d.Type {
			t.Errorf("%s is a %s, and in docs/metrics.md a %s", name, kind, d.Type)
		}
		for _, s := range f.GetMetric() {
			labels := []string{}
			for _, l := range s.GetLabel() {
				labels = append(labels, l.GetName())
			}
			slices.Sort(labels)
			if !slices.Equal(labels, d.Labels) {
				t.Errorf("%s has the labels %q, and in docs/metrics.md %q", name, labels, d.Labels)
				break
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		t.Errorf("docs/metrics.md has %s, which there is not", name)
	}
}

// prometheusConfig has Prometheus ask the process twice a second.
const prometheusConfig = `global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}
rule_files: ['%s/dist/prometheus/*.rules.yml']
scrape_configs: [{job_name: culvert, static_configs: [{targets: ['%s']}]}]
`

// testQueries runs all queries of the dashboards, which have to return a series each. So do recorded series. Most alerts must
// not fire here: what they ask for has to be there, and Prometheus evaluates them without an error.
func (m *measured) testQueries(t *testing.T) {
	const addr = "127.0.0.1:9090"
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	check(t, os.WriteFile(config, fmt.Appendf(nil, prometheusConfig, root(), m.addr), 0o644))
	p := start(t, m.lab, "rut", "prometheus", "--config.file="+config, "--storage.tsdb.path="+dir, "--web.listen-address="+addr)
	ask := func(path string, into any) error {
		if !p.running() {
			t.Fatalf("Prometheus has ended: %s", p.out.String())
		}
		body, err := get(m.lab, "rut", addr, path)
		if err != nil {
			return err
		}
		return json.Unmarshal(body, &struct{ Data any }{into})
	}
	answered := func(where, expr string) {
		t.Helper()
		var data struct{ Result []json.RawMessage }
		var err error
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if err = ask("/api/v1/query?query="+url.QueryEscape(expr), &data); err == nil && len(data.Result) > 0 {
				return
			}
		}
		t.Errorf("%s: no answer to %s, %v", where, expr, err)
	}
	queries, err := testbed.DashboardQueries("../../dist/grafana", "5s")
	check(t, err)
	answered("Prometheus", "count_over_time(up[5m]) > 5")
	for _, q := range queries {
		answered(q.Dashboard+", "+q.Panel, q.Expr)
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Query, Health, Type, LastError string }
		}
	}
	check(t, ask("/api/v1/rules", &rules))
	count := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			count++
			if r.Health != "ok" {
				t.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError)
			}
			if r.Type == "recording" {
				answered("recorded series", r.Name)
				continue
			}
			for _, name := range testbed.MetricNames(r.Query) {
				answered("alert "+r.Name, name)
			}
		}
	}
	if count == 0 {
		t.Error("Prometheus has no rules")
	}
	t.Logf("%d queries of dashboards, %d rules", len(queries), count)
}
