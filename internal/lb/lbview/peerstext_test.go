// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"culvert/internal/lb/peerstate"
)

// TestPeersLines shows an exchange with a peer that is well, and with others that are not.
func TestPeersLines(t *testing.T) {
	now := time.Unix(100_000, 0)
	peer := func(addr string, change func(*peerstate.Peer)) peerstate.Peer {
		p := peerstate.Peer{
			Address: netip.MustParseAddrPort(addr), Up: true, Since: now.Add(-3 * time.Minute),
			Datagrams: map[string]uint64{peerstate.Accepted: 1234, peerstate.Lost: 2, peerstate.WrongMAC: 3, peerstate.Flood: 4},
		}
		change(&p)
		return p
	}
	s := &peerstate.State{
		Listen: netip.MustParseAddrPort("10.0.0.1:9482"), Bulk: peerstate.BulkOff, Deviating: 158, Held: 4310, Limit: 262144,
		Peers: []peerstate.Peer{
			peer("10.0.0.2:9482", func(*peerstate.Peer) {}),
			peer("10.0.0.3:9482", func(p *peerstate.Peer) { p.Up = false }),
			peer("10.0.0.4:9482", func(p *peerstate.Peer) { p.OtherRings, p.Wrong = true, "it is cut" }),
			peer("10.0.0.5:9482", func(p *peerstate.Peer) { p.OtherSeed = true }),
		},
	}
	want := `peers of 10.0.0.1:9482  flows beside the rings 158, not told 0  held for others 4,310 of 262,144  not asked at the start: no [lb.peers.bulk]
peer 10.0.0.2:9482  up 3m00s  same rings  datagrams 1,234, lost 2, not taken 7
peer 10.0.0.3:9482  SILENT 3m00s  datagrams 1,234, lost 2, not taken 7
peer 10.0.0.4:9482  up 3m00s  OTHER RINGS  datagrams 1,234, lost 2, not taken 7  it is cut
peer 10.0.0.5:9482  up 3m00s  OTHER SEED (culvert lb seed) or ring size  datagrams 1,234, lost 2, not taken 7`
	if got := strings.Join(peersLines(s, now), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if lines := peersLines(nil, now); len(lines) > 0 {
		t.Errorf("without an exchange: %q", lines)
	}
}
