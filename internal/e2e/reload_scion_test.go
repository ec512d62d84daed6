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

	"culvert/internal/lab"
)

// anotherInterface writes another interface beside interface id into an AS's topology.json, with ports of its own, or takes it out
// again if as is 0. Nobody is at its far end.
func anotherInterface(t *testing.T, as lab.AS, id, number string) {
	t.Helper()
	path := filepath.Join(as.ConfigDir, "topology.json")
	raw, err := os.ReadFile(path)
	check(t, err)
	var topo map[string]any
	check(t, json.Unmarshal(raw, &topo))
	all := topo["border_routers"].(map[string]any)[as.RouterID].(map[string]any)["interfaces"].(map[string]any)
	for n := range all {
		if strings.HasPrefix(n, "29") {
			delete(all, n)
		}
	}
	if number != "" {
		var another map[string]any
		raw, err = json.Marshal(all[id])
		check(t, err)
		check(t, json.Unmarshal(raw, &another))
		delete(another, "remote_interface_id")
		underlay := another["underlay"].(map[string]any)
		for _, side := range []string{"local", "remote"} {
			address := underlay[side].(string)
			colon := strings.LastIndexByte(address, ':')
			port, err := strconv.Atoi(address[colon+1:])
			check(t, err)
			underlay[side] = fmt.Sprintf("%s:%d", address[:colon], port+100)
		}
		all[number] = another
	}
	raw, err = json.MarshalIndent(topo, "", "  ")
	check(t, err)
	check(t, os.WriteFile(path, raw, 0o600))
}

// TestReloadTopology adds an interface to a router under load, gives it another number and takes it away. The streams over other
// links lose nothing, and the reference routers at their far ends see no session leave Up.
func TestReloadTopology(t *testing.T) {
	const interval = time.Second // with a shorter one a busy machine misses packets
	b := newThrough2(t, "rlt", interval)
	changes := func() (all []string) {
		for _, far := range []string{"as1", "as3"} {
			as, err := b.lab.AS(far)
			check(t, err)
			series, err := scrape(b.lab, far, as.RouterAPI.String(), "router_bfd_state_changes_total")
			check(t, err)
			all = append(all, series...)
		}
		return all
	}
	for _, id := range []string{"201", "203"} {
		wait(t, "the session of "+id, func() bool {
			up, err := interfaceUp(b.lab, b.as2, id)
			return err == nil && up
		})
	}
	before := strings.Join(changes(), "\n")
	load := startLoad(t, b.from, b.s)
	load.wait(100)
	reload := func(number string, want string) {
		t.Helper()
		anotherInterface(t, b.as2, "203", number)
		begun := time.Now()
		out, err := b.lab.Run(t.Context(), "as2", program(), "reload")
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("reload: %v, want %q\n%s", err, want, out)
		}
		t.Logf("%v: %s", time.Since(begun), strings.TrimSpace(string(out)))
	}
	for range 2 {
		reload("299", "link 299 added")
		reload("298", "link 299 becomes link 298")
		reload("", "link 298 removed")
	}
	time.Sleep(3 * interval) // a session that had begun anew would say so by then
	load.wait(100)
	load.stop()
	settled(t, b.sink)
	b.s.wantAll(t, b.sink)
	if after := strings.Join(changes(), "\n"); after != before || before == "" {
		t.Errorf("state changes of BFD sessions at the far ends:\n%s\nbefore:\n%s", after, before)
	}
	p := plane(t, b.lab, "as2")
	forwarded := count(t, p, "to-as1")["fwd scion-br-transit"]
	t.Logf("%d packets, %d on the fast path", b.s.sent.Load(), forwarded)
	if forwarded == 0 {
		t.Error("nothing went by the fast path")
	}
	// No packet of the control plane is in the size class of the stream's.
	as3, err := b.lab.AS("as3")
	check(t, err)
	sent := fmt.Sprintf(`router_output_pkts_total{interface="203",isd_as=%q,neighbor_isd_as=%q,sizeclass="1024_2047",type="br_transit"}`,
		b.as2.IA, as3.IA)
	if got := metric(t, b.lab, b.as2, sent); got != float64(b.s.sent.Load()) {
		t.Errorf("%v packets in the metrics, want %d", got, b.s.sent.Load())
	}
}
