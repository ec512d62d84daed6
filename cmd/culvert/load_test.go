// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestHotQueue sends all packets into one of four queues. doctor names the queue while they come, with workers on CPUs that there are as
// the remedy, and status shows the share of each queue.
func TestHotQueue(t *testing.T) {
	b := newFilterBed(t)
	attrs := netlink.LinkAttrs{Name: "hq0", NumRxQueues: 4, NumTxQueues: 4}
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "hq1", PeerNumRxQueues: 4, PeerNumTxQueues: 4}))
	for _, name := range []string{"hq0", "hq1"} {
		must(os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0))
		l, err := netlink.LinkByName(name)
		must(err)
		must(netlink.LinkSetUp(l))
	}
	path := b.file("c.toml", "interfaces = ['hq0']\n[filter]\n[[filter.rule]]\nname = 'all'\naction = 'drop'\nexpression = 'udp'\n")
	b.expect(0, "culvert attached to hq0\n", "attach", "-c", path)
	if _, out, _ := culvert(t, "doctor", "-i", "hq0"); strings.Contains(out, " load ") {
		t.Errorf("without packets doctor says\n%s", out)
	}
	// Frames of XDP programs go into the queue with the number of the CPU that sends them.
	b.blast("hq1", "--rate", "20000", "--cpu", "0")
	b.eventually("queue 0 of 4 has ", "doctor -i hq0")
	_, out, _ := culvert(t, "doctor", "-i", "hq0")
	if !strings.Contains(out, "Workers get nothing of a filter alone") || strings.Contains(out, "[workers]") {
		t.Errorf("of a filter alone doctor says\n%s", out)
	}
	const router = "interfaces = ['hq0']\n[route]\n[filter]\n"
	b.expect(0, "hq0", "attach", "-c", b.file("r.toml", router))
	b.eventually("Workers spread what the card does not", "doctor -i hq0")
	_, out, _ = culvert(t, "doctor", "-i", "hq0")
	remedy := regexp.MustCompile(`-> culvert attach, with \[workers\] in the file: cpus = ("[0-9,-]+")\n`).FindStringSubmatch(out)
	if remedy == nil {
		t.Fatalf("doctor has no command in\n%s", out)
	}
	// What it advises brings something: it is not told to go afterwards.
	b.expect(0, "hq0", "attach", "-c", b.file("w.toml", router+"[workers]\ncpus = "+remedy[1]+"\n"))
	if _, out, _ = culvert(t, "doctor", "-i", "hq0"); strings.Contains(out, "no effect") || strings.Contains(out, "Workers get") {
		t.Errorf("with the workers that it advised doctor says\n%s", out)
	}
	status := b.expect(0, "", "status")
	shares := regexp.MustCompile(`(?m)^    queues: 4 receive, packets (\d+) (\d+) (\d+) (\d+) %$`).FindStringSubmatch(status)
	cpu := regexp.MustCompile(`(?m)^    by CPU:  0 (?:100|9\d) %`).MatchString(status)
	if shares == nil || slices.Max(percents(shares[1:])) < 90 || !cpu {
		t.Errorf("status says\n%s", status)
	}
}

func percents(texts []string) (all []int) {
	for _, text := range texts {
		n, err := strconv.Atoi(text)
		must(err)
		all = append(all, n)
	}
	return all
}

// blast sends packets out of an interface until the test ends.
func (b *filterBed) blast(device string, flags ...string) {
	b.t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"gen", "blast", device}, flags...)...)
	cmd.Env = append(os.Environ(), asCulvert+"=1")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	must(cmd.Start())
	b.t.Cleanup(func() {
		must(cmd.Process.Signal(os.Interrupt))
		if err := cmd.Wait(); err != nil && !strings.Contains(said.String(), "sent") {
			b.t.Error(fmt.Errorf("gen blast %s: %w: %s", device, err, said.String()))
		}
	})
}
