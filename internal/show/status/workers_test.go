// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"
	"testing"
	"time"

	"culvert/internal/stats"
)

func TestWorkersAreShown(t *testing.T) {
	i := Interface{Port: stats.Port{
		Interface: "e0", Attached: true,
		Reasons: []stats.Reason{{Name: "scion-out", Verdict: "fwd", Packets: 90, Bytes: 900}},
		Losses:  map[string]uint64{"worker-queue": 7, "worker": 2, "transmit": 1},
	}}
	i.Packets, i.Bytes = i.Total()
	if i.Packets != 97 {
		t.Errorf("received %d packets, want those forwarded and those lost in the queue", i.Packets)
	}
	r := Report{Routers: []Router{{ID: "br1", Workers: &Workers{CPUs: []int{1, 2, 3, 5}, Queue: 2048}, Interfaces: []Interface{i}}}}
	var text, json strings.Builder
	if err := r.WriteText(&text, time.Now(), false); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteJSON(&json); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  workers on CPUs 1-3,5  queue 2048 packets each\n", "worker-queue"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if want := `"workers":{"cpus":[1,2,3,5],"queue":2048}`; !strings.Contains(strings.Join(strings.Fields(json.String()), ""), want) {
		t.Errorf("no %s in\n%s", want, json.String())
	}
	r.Routers[0].Interfaces[0].Stays, r.Routers[0].Interfaces[0].StaysBecause = true, staysBecause("e0", true, false)
	text.Reset()
	const stays = "workers get none of its packets: in generic mode this kernel (older than Linux 6.15)"
	if err := r.WriteText(&text, time.Now(), false); err != nil || !strings.Contains(text.String(), stays) || !strings.Contains(text.String(), ": culvert reload, without [workers]") {
		t.Errorf("no %q in\n%s, %v", stays, text.String(), err)
	}
	r.Routers[0].Workers = nil
	text.Reset()
	if err := r.WriteText(&text, time.Now(), false); err != nil || strings.Contains(text.String(), "workers on") {
		t.Errorf("workers in\n%s, %v", text.String(), err)
	}
}
