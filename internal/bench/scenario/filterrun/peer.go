// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/host/netdev"
)

// packetFilter is a packet filter under test. Its namespace is removed after Remove, with everything that it made there.
type packetFilter interface {
	// Install installs rules for packets that arrive at a device. The caller must call Remove, also after an error.
	Install(ctx context.Context, in load.End, rules ruleSet) error
	// Dropped is the number of packets that the filter has dropped, by its own counter.
	Dropped(ctx context.Context) (uint64, error)
	// Remove removes what does not disappear with the namespace.
	Remove() error
}

// errUnsupported is the error of a filter that does not support the rules.
var errUnsupported = errors.New("it cannot have such rules")

// listen makes a veth without an XDP program accept packets from XDP programs, by turning GRO on, which is the default of most
// drivers.
func listen(in load.End) error {
	const setGRO = 0x2c // ETHTOOL_SGRO
	return in.Netns.Do(func() error {
		if _, err := netdev.Ethtool(in.Name, setGRO, 1); err != nil {
			return fmt.Errorf("turn GRO on for %s: %w", in.Name, err)
		}
		return nil
	})
}

// noFilter passes all packets.
type noFilter struct{}

func (noFilter) Install(_ context.Context, in load.End, _ ruleSet) error { return listen(in) }

func (noFilter) Dropped(context.Context) (uint64, error) { return 0, nil }

func (noFilter) Remove() error { return nil }

// iptables is the filter iptables, with all rules in one chain.
type iptables struct {
	// program is iptables, which uses nftables on Debian, or iptables-legacy.
	program      string
	table, chain string
	// before are rules in front of all others.
	before []string
	// match is the match for the flood. Empty stands for the protocol number of ICMP.
	match string
	// byIPSet matches the flood's source in a set of ipset.
	byIPSet bool

	netns *load.Netns
	// rule is the number of the rule that drops, from 1.
	rule int
}

func (d *iptables) Install(ctx context.Context, in load.End, rules ruleSet) error {
	d.netns, d.rule = in.Netns, len(d.before)+rules.Idle+1
	match := d.match
	switch {
	case d.byIPSet && len(rules.Set) > 0:
		if _, err := d.netns.Command(ctx, rules.ipset(), "ipset", "restore"); err != nil {
			return err
		}
		match = "-m set --match-set " + setName + " src"
	case len(rules.Set) > 0:
		return errUnsupported
	case match == "":
		match = iptablesICMP
	}
	text := rules.iptables(d.table, d.chain, d.before, match)
	if _, err := d.netns.Command(ctx, text, d.program+"-restore"); err != nil {
		return err
	}
	return listen(in)
}

// Dropped implements packetFilter: it reads the counter of the last rule.
func (d *iptables) Dropped(ctx context.Context) (uint64, error) {
	out, err := d.netns.Command(ctx, "", d.program, "-t", d.table, "-L", d.chain, strconv.Itoa(d.rule), "-v", "-x", "-n")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(out)
	if len(fields) < 3 || fields[2] != "DROP" {
		return 0, fmt.Errorf("read the counter of rule %d of %s: it is %q", d.rule, d.program, strings.TrimSpace(out))
	}
	return strconv.ParseUint(fields[0], 10, 64)
}

// Remove implements packetFilter. The rules disappear with the namespace.
func (*iptables) Remove() error { return nil }

// nftables is the filter nftables at the ingress hook of the device, before the IP stack.
type nftables struct{ netns *load.Netns }

func (d *nftables) Install(ctx context.Context, in load.End, rules ruleSet) error {
	d.netns = in.Netns
	if _, err := d.netns.Command(ctx, rules.nft(in.Name), "nft", "-f", "-"); err != nil {
		return err
	}
	return listen(in)
}

// Dropped implements packetFilter. It reads the counter by netlink, because nft(8) would first read all elements of all sets.
func (d *nftables) Dropped(context.Context) (packets uint64, err error) {
	err = d.netns.Do(func() error {
		packets, err = nftCounter(tableName, counterName)
		return err
	})
	return packets, err
}

// Remove implements packetFilter. The rules disappear with the namespace.
func (*nftables) Remove() error { return nil }

// tryPeer installs one rule to see whether a filter works on this machine. The error says what is missing.
func tryPeer(ctx context.Context, peer packetFilter) (err error) {
	const limit = 20 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	b := &bed{peer: peer}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.build(); err != nil {
		return err
	}
	if err := peer.Install(ctx, b.path.In, ruleSet{}); err != nil {
		return errors.Join(err, peer.Remove())
	}
	_, err = peer.Dropped(ctx)
	return errors.Join(err, peer.Remove())
}
