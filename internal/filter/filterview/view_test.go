// SPDX-License-Identifier: Apache-2.0

package filterview

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/talkers"
)

func TestSpeeds(t *testing.T) {
	at := func(seconds float64, rules ...Rule) sample {
		return sample{time.Unix(0, int64(seconds*1e9)), Report{Rules: rules}}
	}
	rule := func(name string, packets, bytes uint64) Rule {
		return Rule{Name: name, Traffic: Traffic{packets, bytes}}
	}
	limit := rule("l", 100, 1000)
	limit.Over = &Traffic{Packets: 10}
	later := rule("l", 300, 2000)
	later.Over = &Traffic{Packets: 60}
	got := speeds(
		at(1, rule("a", 10, 100), rule("again", 50, 500), limit, rule("gone", 1, 1)),
		at(3, rule("new", 7, 70), later, rule("a", 10, 100), rule("again", 3, 30)),
	)
	want := []speed{
		{rule: rule("new", 7, 70)},
		{rule: later, packets: 100, bits: 4000, over: 25, moved: true},
		{rule: rule("a", 10, 100)},
		{rule: rule("again", 3, 30)},
	}
	for n := range want {
		g, w := got[n], want[n]
		if g.rule.Name != w.rule.Name || g.packets != w.packets || g.bits != w.bits || g.over != w.over || g.moved != w.moved {
			t.Errorf("got %+v, want %+v", g, w)
		}
	}
}

func TestListText(t *testing.T) {
	r := Report{
		Router: "edge", Interfaces: []string{"eth1", "eth2"}, Short: Traffic{Packets: 3}, Malformed: Traffic{Packets: 1},
		Rules: []Rule{
			{Name: "noicmp", Words: "drop icmp", From: "hand", Traffic: Traffic{1234567, 121e6}, NotAttached: []string{"eth8", "eth9"}},
			{Name: "dns", Words: "limit 1kpps 'udp port 53'", From: "file", Traffic: Traffic{10, 640}, Over: &Traffic{Packets: 4}},
		},
		Sets:     []Set{{Name: "bad", Type: "prefix", From: "file", Count: 1000000, Rules: []string{"noicmp"}}, {Name: "x", Type: "endpoint", From: "hand", Count: 1}},
		Services: []Service{{Address: "192.0.2.1:80", From: "hand", Forwarded: true, MSS: 1440, WindowScale: 7}},
		ByLookup: 1024,
		Top:      "src",
	}
	const want = `filter of edge on eth1, eth2  2 rules, 2 sets, 1 protected service
  RULE      PACKETS  BYTES  OVER  FROM  WHAT
  noicmp  1,234,567  121MB        hand  drop icmp  (not attached: eth8, eth9)
  dns            10   640B     4  file  limit 1kpps 'udp port 53'
  1,024 rules by lookup
  short  3 packets ended before a byte that a rule reads, and did not match it
  malformed  1 packet with a header that contradicts itself is in no set
  set bad  1,000,000 prefixes   from file  for noicmp
  set x            1 endpoint   from hand
  protect 192.0.2.1:80 --forwarded --mss 1440 --wscale 7  from hand
  top --by src is on`
	if got := strings.Join(r.lines(), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	empty := Report{Router: "edge", Interfaces: []string{"eth1"}}
	if got := strings.Join(empty.lines(), "\n"); got != "filter of edge on eth1  no rules: add one with 'culvert filter add'" {
		t.Errorf("got %s", got)
	}
}

func TestSummary(t *testing.T) {
	const eth = "020000000001" + "020000000002"
	const ip4, ip6 = "c0000201" + "c0000202", "20010db8000000000000000000000001" + "20010db8000000000000000000000002"
	for _, tt := range []struct{ name, frame, want string }{
		{"nothing", "", "0 bytes, no Ethernet frame"},
		{
			"ARP", eth + "0806" + "0001080006040001" + strings.Repeat("00", 20),
			"02:00:00:00:00:02 > 02:00:00:00:00:01 arp, 42 bytes",
		},
		{
			"IPv4, truncated", eth + "0800" + "45",
			"02:00:00:00:00:02 > 02:00:00:00:00:01 ethertype 0x0800, 15 bytes",
		},
		{
			"UDP in a VLAN", eth + "8100" + "0064" + "0800" + "4500001c000000004011" + "0000" + ip4 + "04d2003500080000",
			"192.0.2.1:1234 > 192.0.2.2:53 vlan 100 udp, 46 bytes",
		},
		{
			"a second fragment", eth + "0800" + "4500001c000020b94011" + "0000" + ip4 + "04d2003500080000",
			"192.0.2.1 > 192.0.2.2 udp fragment at 1480, 42 bytes",
		},
		{
			"ICMPv6", eth + "86dd" + "6000000000083aff" + ip6 + "8000000000000000",
			"2001:db8::1 > 2001:db8::2 icmp6 echo-request, 62 bytes",
		},
		{
			"TCP flags", eth + "0800" + "45000028000000004006" + "0000" + ip4 + "04d20050000000000000000050120000" + "00000000",
			"192.0.2.1:1234 > 192.0.2.2:80 tcp syn,ack, 54 bytes",
		},
		{
			"LLDP", eth + "88cc" + "0000",
			"02:00:00:00:00:02 > 02:00:00:00:00:01 ethertype 0x88cc, 16 bytes",
		},
	} {
		b, err := hex.DecodeString(tt.frame)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got := summary(b); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestOpenPcap(t *testing.T) {
	var ng, wifi bytes.Buffer
	w, err := pcapgo.NewNgWriter(&ng, layers.LinkTypeEthernet)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := pcapgo.NewWriter(&wifi).WriteFileHeader(65535, layers.LinkTypeIEEE802_11); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		ng.String():                          "",
		"":                                   "it ends before the first packet",
		"hello, this is no pcap file at all": "it is no pcap or pcapng file",
		wifi.String():                        "the filter judges Ethernet frames",
	} {
		_, err := openPcap(bufio.NewReader(strings.NewReader(text)))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.10q: %v, want %q", text, err, want)
		}
	}
}

func TestTalkers(t *testing.T) {
	all := Talkers{
		Router: "edge", By: "src", Seconds: 2, Packets: 1000, Bytes: 100000, Others: 50,
		Talkers: []Talker{{"192.0.2.1", 600, 0, 60000}, {"2001:db8::1", 200, 100, 20000}},
	}
	got := strings.Join(append(append([]string{all.headline()}, all.table("  ").Lines()...), all.rest()...), "\n")
	const want = `edge by src  2.0s  500 packets/s  400kbit/s
  SRC          PACKETS/S  BITS/S  SHARE   ERROR
  192.0.2.1          300    240k  60.0%       0
  2001:db8::1        100   80.0k  10.0%  +10.0%
  anybody else has at most 5.0%, 25 packets/s`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for want, k := range map[string]struct {
		key talkers.Key
		by  filterplane.TopBy
	}{
		"not IP":       {talkers.Key{}, filterplane.TopSrc},
		"192.0.2.1":    {talkers.Key{IP: true, Prefix: netip.MustParsePrefix("192.0.2.1/32")}, filterplane.TopDst},
		"192.0.2.0/24": {talkers.Key{IP: true, Prefix: netip.MustParsePrefix("192.0.2.0/24")}, filterplane.TopPrefix},
		"udp 53":       {talkers.Key{IP: true, Proto: 17, Port: 53}, filterplane.TopPort},
		"icmp":         {talkers.Key{IP: true, Proto: 1}, filterplane.TopPort},
		"protocol 99":  {talkers.Key{IP: true, Proto: 99}, filterplane.TopPort},
	} {
		if got := keyName(k.key, k.by); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestEntryTimeout(t *testing.T) {
	for seconds, want := range map[float64]string{
		0: "", 1e-9: " timeout 1s", 0.25: " timeout 1s", 0.75: " timeout 1s", 1.6: " timeout 2s", 600: " timeout 10m0s",
	} {
		if got := (Entry{"192.0.2.1", seconds}).timeout(); got != want {
			t.Errorf("%v: %q, want %q", seconds, got, want)
		}
	}
}

// truncatedFile is a file that ends within a packet.
type truncatedFile struct{ frames [][]byte }

func (*truncatedFile) LinkType() layers.LinkType { return layers.LinkTypeEthernet }

func (c *truncatedFile) ReadPacketData() ([]byte, gopacket.CaptureInfo, error) {
	if len(c.frames) == 0 {
		return nil, gopacket.CaptureInfo{}, io.ErrUnexpectedEOF
	}
	f := c.frames[0]
	c.frames = c.frames[1:]
	return f, gopacket.CaptureInfo{CaptureLength: len(f), Length: len(f)}, nil
}

// TestShortFrames has frames that are too short for the kernel to run a program on.
func TestShortFrames(t *testing.T) {
	for _, asJSON := range []bool{true, false} {
		var out bytes.Buffer
		r := runner{o: TestOptions{JSON: asJSON}, out: &out}
		err := r.all("x.pcap", &truncatedFile{[][]byte{{}, make([]byte, 13)}})
		if err == nil || err.Error() != "reading packet 3 of x.pcap: unexpected EOF" {
			t.Errorf("got %v", err)
		}
		if !asJSON {
			if n := strings.Count(out.String(), "pass  -  "); n != 2 {
				t.Errorf("got\n%s", out.String())
			}
			continue
		}
		var got struct {
			Packets []Result
			Totals  Totals
			Error   string
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("%v:\n%s", err, out.String())
		}
		if len(got.Packets) != 2 || !got.Packets[1].Short || got.Packets[1].Verdict != "pass" || got.Packets[1].Rule != "" ||
			got.Totals.Short != 2 || got.Totals.Passed != 2 || got.Error != err.Error() {
			t.Errorf("got %+v", got)
		}
	}
}
