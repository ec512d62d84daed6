// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// wish is what a configuration may have or not. The zero value has all that is counted, and nothing else.
type wish struct {
	warn, spare, workers, noRoute, largeMirror, smallTable, noBGP6, sflow, moreVIP, moreLink bool
	// weights are those of the backends of the UDP VIPs.
	weights [2]int
	// rules is how many rules the filter has beside those that are counted, and entries how many entries its set has.
	rules, entries int
}

// isUsual tells whether it takes the same memory each time.
func (w wish) isUsual() bool {
	w.weights, w.warn = [2]int{}, false
	return w == wish{}
}

// another returns a wish at random: the usual configuration, with any weights, or anything.
func another(rng *rand.Rand) wish {
	if rng.IntN(usualShare) == 0 {
		return wish{weights: [2]int{1 + rng.IntN(3), 1 + rng.IntN(3)}}
	}
	one := func(n int) bool { return rng.IntN(n) == 0 }
	return wish{
		warn: one(2), spare: one(2), workers: one(4), noRoute: one(8), largeMirror: one(4), smallTable: one(6), noBGP6: one(4),
		sflow: one(3), moreVIP: one(2), moreLink: one(3), weights: [2]int{1 + rng.IntN(3), 1 + rng.IntN(3)},
		rules: rng.IntN(8), entries: rng.IntN(2000),
	}
}

// scionKey is a forwarding key of the schedule.
type scionKey struct {
	file    string
	derived string // in base64, "" for that of the AS
}

// countedRules are the rules of the filter that are counted. Their counters go by their names, whatever else is changed.
const countedRules = `
[[filter.rule]]
name = "dropped"
action = "drop"
expression = "udp dst port 7702"

[[filter.rule]]
name = "allowed"
action = "count"
expression = "udp dst port 7701"

[[filter.rule]]
name = "limited"
action = "limit"
expression = "udp dst port 7703"
rate = "20pps"
`

// write writes all files of a configuration. The process has not read them then.
func (b *bed) write(w wish, key *scionKey) error {
	config := b.config
	var missing []string
	replace := func(old, new string) {
		if !strings.Contains(config, old) {
			missing = append(missing, old)
		}
		config = strings.Replace(config, old, new, 1)
	}
	more := `, "` + secondPath + `"`
	if w.spare {
		more += `, "` + spare + `"`
	}
	// A busy machine is no backend that fails.
	config = strings.ReplaceAll(config, "path = \"/health\"", patientCheck)
	replace(`"to-peer"`, `"to-peer"`+more)
	switch route := "[route]\nblocks4 = 1024\nblocks6 = 1024\n"; {
	case w.noRoute:
		replace(route, "")
	case w.largeMirror:
		replace(route, strings.ReplaceAll(route, "1024", "2048"))
	}
	if w.smallTable {
		replace("flows = 65536", "flows = 50000")
	}
	if w.noBGP6 {
		at := strings.Index(config, "[[lb.bgp.neighbor]]\naddress = \"2001:")
		next := strings.Index(config[at+1:], "\n[[") + at + 1
		config = config[:at] + config[next:]
	}
	replace("[scion]\n", "[scion]\ndebug_http = true\n") // for profiles
	if w.warn {
		config = "log_level = \"warn\"\n" + config
	}
	if w.workers {
		config += fmt.Sprintf("\n[workers]\ncpus = \"0-%d\"\nqueue = 16384\n", runtime.NumCPU()-1)
	}
	if w.sflow {
		config += "\n[sflow]\ncollector = \"127.0.0.1:6343\"\nrate = 100\ndrops = 20\npolling = \"10s\"\n"
	}
	config += udpVIP(fmt.Sprintf("%s:%d", vip4, vipPort), w.weights, true) + udpVIP(fmt.Sprintf("[%s]:%d", vip6, vipPort), w.weights, true)
	if w.moreVIP {
		config += udpVIP("203.0.113.92:53", w.weights, false) // no backend has the address
	}
	if key != nil {
		config += fmt.Sprintf("\n[[scion.key]]\nfile = %q\n\n[[scion.key]]\nfile = %q\nnot_before = %s\n",
			filepath.Join(b.middle.Keys, "master0.key"), key.file, time.Now().Add(-time.Minute).UTC().Format(time.RFC3339))
	}
	filter := b.dropIn + countedRules
	for n := range w.rules {
		filter += fmt.Sprintf("\n[[filter.rule]]\nname = \"r%d\"\naction = \"count\"\nexpression = \"udp port %d\"\n", n, 1000+10*n+w.rules)
	}
	blocked := b.lab.All.Blocked.String() + "\n192.0.2.0/24\n"
	for n := range w.entries {
		blocked += fmt.Sprintf("10.%d.%d.0/24\n", n/200, n%200)
	}
	if len(missing) > 0 {
		return fmt.Errorf("the lab's configuration has no %q", missing)
	}
	topo, err := b.links(w.moreLink)
	if err != nil {
		return err
	}
	for path, text := range map[string]string{
		b.lab.All.Config: config, b.lab.All.DropIn: filter, filepath.Join(b.lab.Dir, "blocked.txt"): blocked, b.topology(): topo,
	} {
		if err := save(path, text); err != nil {
			return err
		}
	}
	return nil
}

// patientCheck are the settings of the backends' checks.
const patientCheck = "path = \"/health\"\ninterval = \"3s\"\ntimeout = \"3s\"\nfall = 3"

// udpVIP returns the table of a VIP for UDP. Its backends may be checked, by HTTP.
func udpVIP(address string, weights [2]int, checked bool) string {
	text := fmt.Sprintf("\n[[lb.vip]]\naddress = %q\nprotocol = \"udp\"\n", address)
	if checked {
		text += "[lb.vip.check]\ntype = \"http\"\nport = 80\n" + patientCheck + "\n"
	}
	for n, encap := range []string{"ipip", "gue"} {
		text += fmt.Sprintf("[[lb.vip.backend]]\naddress = %q\nencapsulation = %q\nweight = %d\n", backends[fmt.Sprintf("b%d", n+1)], encap, weights[n])
	}
	return text
}

// links returns topology.json with or without a link more. Nobody is at its far end.
func (b *bed) links(more bool) (string, error) {
	if !more {
		return string(b.topo), nil
	}
	var topo map[string]any
	if err := json.Unmarshal(b.topo, &topo); err != nil {
		return "", err
	}
	router := topo["border_routers"].(map[string]any)[b.middle.RouterID].(map[string]any)
	router["interfaces"].(map[string]any)["209"] = map[string]any{
		"underlay": map[string]any{"local": "198.18.12.2:50009", "remote": "198.18.12.1:50009"},
		"isd_as":   "1-ff00:0:9", "link_to": "core", "mtu": 1280,
	}
	text, err := json.MarshalIndent(topo, "", "  ")
	return string(text), err
}

// save replaces a file in one step.
func save(path, text string) error {
	if err := os.WriteFile(path+"~", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+"~", path)
}
