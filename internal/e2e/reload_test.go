// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// reloadsEnv has the number of reloads of TestReloadAllStages: 'make test-long' does a thousand.
const reloadsEnv = "CULVERT_TEST_RELOADS"

// TestReloadAllStages reloads under a load for all stages: whatever a configuration has changes. Nothing is lost between
// reception and verdict, counters are exact, flows stay with their backends, and sessions stay up.
func TestReloadAllStages(t *testing.T) {
	reloads := 6 // each thing that can change does
	if text := os.Getenv(reloadsEnv); text != "" {
		n, err := strconv.Atoi(text)
		check(t, err)
		reloads = n
	}
	b := newEverything(t)
	b.write(0)
	b.reload()
	b.begin()
	first := b.use(0)
	t.Logf("before: %s", first)
	programs := 0
	for n := 0; n < reloads; {
		b.underLoad(func() {
			for range min(10, reloads-n) {
				n++
				b.write(n)
				start := time.Now()
				newProgram := b.reload()
				b.took += time.Since(start)
				if newProgram {
					programs++
				}
				b.forward(n)
			}
		})
		b.settle()
		if n%100 == 0 || n == reloads {
			b.write(0)
			b.reload()
			b.checkSamples()
			t.Logf("after %d reloads, which took %s each: %s", n, (b.took / time.Duration(n)).Round(time.Millisecond), b.use(first.fds))
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	if programs == 0 || programs == reloads {
		t.Errorf("%d of %d reloads loaded a new program", programs, reloads)
	}
}

// write writes configuration number n. Number 0 has everything on.
func (b *everything) write(n int) {
	b.Helper()
	config := b.config
	replace := func(old, new string) {
		if !strings.Contains(config, old) {
			b.Fatalf("the lab's configuration has no %q", old)
		}
		config = strings.Replace(config, old, new, 1)
	}
	if n%7 == 3 {
		replace(`, "to-b2"`, ``)
	}
	if n%8 == 5 {
		replace("[route]\nblocks4 = 1024\nblocks6 = 1024\n", "")
	}
	if n%6 >= 3 {
		at := strings.Index(config, "[[lb.bgp.neighbor]]\naddress = \"2001:")
		next := strings.Index(config[at+1:], "\n[[") + at + 1
		replace(config[at:next], "")
	}
	config += b.sflow(n)
	top := ""
	if n%2 == 1 {
		top = "log_level = \"warn\"\n"
	}
	workers := ""
	if n%10 >= 5 {
		workers = "\n[workers]\ncpus = \"0-1\"\nqueue = 16384\n"
	}
	config = top + config + workers
	backend := func(addr string, weight int) string {
		return fmt.Sprintf("\n[[lb.vip.backend]]\naddress = \"%s\"\nweight = %d\n", addr, weight)
	}
	vip := func(addr string, backends ...string) {
		config += fmt.Sprintf("\n[[lb.vip]]\naddress = \"%s:%d\"\nprotocol = \"udp\"\n", addr, reloadPort) + strings.Join(backends, "")
	}
	as3, peer, client := sinkBackends[0].addr, sinkBackends[1].addr, sinkBackends[2].addr
	steady := []string{backend(as3, 1), backend(peer, 1+n%3)}
	if n%4 == 3 {
		steady = append(steady, backend(client, 1))
	}
	vip(steadyVIP.String(), steady...)
	moving := []string{backend(peer, 1)}
	if n%5 < 3 {
		moving = append(moving, backend(client, 1))
	}
	vip(movingVIP.String(), moving...)
	if n%4 == 2 {
		vip("203.0.113.92", backend(as3, 1))
	}
	filter := b.dropIn + fmt.Sprintf("\n[[filter.rule]]\nname = \"r%d\"\naction = \"count\"\nexpression = \"udp port %d\"\n", n%2, 1000+n%50)
	if n%9 == 4 {
		filter = ""
	}
	router := b.router
	if n%3 == 1 {
		router = strings.Replace(router, ":30442", ":30443", 1)
	}
	as, err := b.lab.AS("rut")
	check(b.T, err)
	b.save(b.lab.All.Config, config)
	b.save(b.lab.All.DropIn, filter)
	b.save(filepath.Join(b.lab.Dir, "blocked.txt"), fmt.Sprintf("%s\n192.0.2.0/24\n10.%d.0.0/16\n", b.lab.All.Blocked, n%200))
	b.save(as.RouterConfig, router)
	b.save(filepath.Join(as.ConfigDir, "topology.json"), b.links(as.RouterID, n%11 >= 6))
}

// links returns topology.json with or without a link more.
func (b *everything) links(router string, more bool) string {
	b.Helper()
	interfaces := b.topology["border_routers"].(map[string]any)[router].(map[string]any)["interfaces"].(map[string]any)
	delete(interfaces, "209")
	if more {
		interfaces["209"] = map[string]any{
			"underlay": map[string]any{"local": "198.18.12.2:50009", "remote": "198.18.12.1:50009"},
			"isd_as":   "1-ff00:0:9", "link_to": "core", "mtu": 1472,
		}
	}
	text, err := json.MarshalIndent(b.topology, "", "  ")
	check(b.T, err)
	return string(text)
}

// save replaces a file in one step.
func (b *everything) save(path, text string) {
	b.Helper()
	check(b.T, os.WriteFile(path+"~", []byte(text), 0o644))
	check(b.T, os.Rename(path+"~", path))
}
