// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"culvert/internal/lb/peerstate"
	"culvert/internal/testbed"
)

// peersFiles returns the path of a key, and a table for TLS.
func peersFiles(t *testing.T) (key, bulk string) {
	t.Helper()
	key = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	ca := testbed.NewAuthority(t)
	cert, secret := ca.Issue(netip.MustParseAddr("10.9.1.1"))
	return key, fmt.Sprintf("[lb.peers.bulk]\ncert_file = %q\nkey_file = %q\nca_file = %q\n", cert, secret, ca.CA)
}

// TestPeersErrors wants errors of an [lb.peers] table with their position.
func TestPeersErrors(t *testing.T) {
	key, bulk := peersFiles(t)
	open, short := key+"-open", key+"-short"
	for path, text := range map[string]string{open: strings.Repeat("k", 32), short: "short"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	head := "[lb.peers]\nlisten = \"10.0.0.1:9482\"\npeers = [\"10.0.0.2:9482\"]\n"
	keyLine := fmt.Sprintf("key_file = %q\n", key)
	for _, tt := range []struct{ text, want string }{
		{strings.Replace(head, "10.0.0.1:9482", "10.0.0.1", 1) + keyLine, "c.toml:4:10: listen = \"10.0.0.1\": write an address with a port"},
		{strings.Replace(head, "10.0.0.2:9482", "lb2:9482", 1) + keyLine, "c.toml:5:1: peers: \"lb2:9482\": write an address with a port"},
		{strings.Replace(head, "10.0.0.2", "10.0.0.1", 1) + keyLine, "c.toml:3:2: [lb.peers]: peer 10.0.0.1:9482 is listen of this machine"},
		{head + keyLine + "rate = 0\n", "c.toml:7:8: rate = 0: use 1 to 1000000 flows a second"},
		{head + keyLine + "flows = 2000000\n", "c.toml:7:9: flows = 2000000: use 1 to 1048576"},
		{head + fmt.Sprintf("key_file = %q\n", open), "c.toml:6:12: the key of the load balancer's peers: "},
		{head + fmt.Sprintf("key_file = %q\n", short), "has 5 bytes, and a key has at least 32"},
		{head + keyLine + strings.Replace(bulk, "ca.crt", "no.crt", 1), "[lb.peers.bulk]: "},
		{head + keyLine + bulk + "timeout = \"2m\"\n", "timeout = \"2m\": use 100ms to 1m0s"},
	} {
		_, err := compile(t, lbHead+tt.text)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", tt.text, err, tt.want)
		}
	}
	p, err := compile(t, lbHead+head+keyLine+"rate = 7\nflows = 9\n"+bulk)
	if err != nil || p.peers.Rate != 7 || p.peers.Flows != 9 || p.peers.Bulk == nil || len(p.peers.Peers) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
	if files := p.Files(); len(files) != 1 || files[0] != key {
		t.Errorf("read again if these change: %v", files)
	}
}

// TestReloadPeers changes [lb.peers] of a load balancer that runs.
func TestReloadPeers(t *testing.T) {
	if !testbed.InProcess(t) {
		return
	}
	key, bulk := peersFiles(t)
	table := func(port int, more string) string {
		return fmt.Sprintf("[lb.peers]\nlisten = \"10.9.1.1:%d\"\npeers = [\"10.9.1.254:9482\"]\nkey_file = %q\n", port, key) + more
	}
	p := newProcess(t)
	file := func(peers string) string {
		return strings.Replace(reloadFile("", "", "192.0.2.2:53"), "[[lb.vip]]\n", peers+"[[lb.vip]]\n", 1)
	}
	shown := func() string {
		s, err := peerstate.Of(p.inst)
		p.must(err)
		if s == nil {
			return "none"
		}
		return fmt.Sprintf("%s %s", s.Listen, s.Bulk)
	}
	p.start(file(""))
	p.eventually("peers", "none", shown)
	p.eventually("announced", "192.0.2.1/32 192.0.2.2/32", p.announced)
	for _, step := range []struct{ peers, how, want string }{
		{table(9482, ""), "followed", "10.9.1.1:9482 off"},
		{table(9482, ""), "served", "10.9.1.1:9482 off"},
		{table(9482, "rate = 7\n"), "followed", "10.9.1.1:9482 off"},
		{table(9482, bulk), "followed", "10.9.1.1:9482 done"}, // what is announced already does not wait
		{table(9483, bulk), "followed", "10.9.1.1:9483 done"},
		{table(9483, ""), "followed", "10.9.1.1:9483 off"},
	} {
		if how := p.reload(file(step.peers), nil); how != step.how {
			t.Errorf("%q: the file was %s, want %s", step.peers, how, step.how)
		}
		p.eventually("peers", step.want, shown)
	}
	p.reload(file(table(9484, bulk)), errors.New("no")) // it is refused, and its sockets are closed
	p.eventually("peers", "10.9.1.1:9483 off", shown)
	p.reload(file(""), nil)
	p.eventually("peers", "none", shown)
	if got := p.announced(); got != "192.0.2.1/32 192.0.2.2/32" {
		t.Errorf("announced: %s", got)
	}
	p.reload(file(table(9484, bulk)), nil)
	p.eventually("peers", "10.9.1.1:9484 asking", shown)
	p.eventually("peers", "10.9.1.1:9484 incomplete", shown)

	// The data plane is detached and attached again, as the process does it with detached = "attach": it lacks what was told meanwhile.
	p.must(p.inst.DetachAll())
	p.eventually("announced", "", p.announced)
	_, err := p.inst.Restore()
	p.must(err)
	for _, u := range p.inst.Unattached() {
		p.must(p.inst.AttachPort(u))
	}
	p.eventually("peers", "10.9.1.1:9484 asking", shown)
	p.eventually("announced", "192.0.2.1/32 192.0.2.2/32", p.announced)
	p.eventually("peers", "10.9.1.1:9484 incomplete", shown)
	log := p.log.String()
	if asked := strings.LastIndex(log, "not all peers"); asked < strings.LastIndex(log, "vips=[]") || strings.LastIndex(log, "vips=\"[192.0.2.1/32") < asked {
		t.Error("addresses are announced before the peers were asked again")
	}
	p.stop(nil)
	p.must(p.serving.Close())
}
