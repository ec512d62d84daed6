// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/host/hostaddr"
	"culvert/internal/host/runstate"
	"culvert/internal/lb"
	"culvert/internal/lb/announce"
	"culvert/internal/lb/bgpstate"
)

// withdrawWait is the longest time for ending the BGP sessions. It leaves time to close the connections after the wait for
// withdrawals.
const withdrawWait = announce.WriteWait + 2*time.Second

// compileBGP returns the options of an [lb.bgp] table, nil for a file without one.
func compileBGP(c *BGPTable) (*announce.Options, error) {
	if c == nil {
		return nil, nil
	}
	o := &announce.Options{ASN: c.ASN, RouterID: c.RouterID, MED: c.MED}
	if err := parseDurations(c, map[string]duration{"hold_time": {c.HoldTime, &o.HoldTime}}); err != nil {
		return nil, err
	}
	var err error
	if o.GracefulRestart, err = restartTime(c.GracefulRestart); err != nil {
		return nil, c.Locate("graceful_restart", err)
	}
	for _, text := range c.Communities {
		community, err := parseCommunity(text)
		if err != nil {
			return nil, c.Locate("communities", err)
		}
		o.Communities = append(o.Communities, community)
	}
	for _, r := range c.Neighbor {
		o.Neighbors = append(o.Neighbors, announce.Neighbor{
			Address: r.Address, ASN: r.ASN, LocalAddress: r.LocalAddress, Password: r.Password, Multihop: r.Multihop, TTLSecurity: r.TTLSecurity,
			NextHop4: r.NextHop4, NextHop6: r.NextHop6,
		})
	}
	if err := o.Check(); err != nil {
		return nil, c.Locate("", err)
	}
	return o, nil
}

// noteBGP notes the local addresses of BGP sessions that this host does not have: no session comes up until it has.
func (p *Plan) noteBGP(note func(error)) {
	if p.bgp == nil {
		return
	}
	for n, neighbor := range p.bgp.Neighbors {
		if !neighbor.LocalAddress.IsValid() {
			continue
		}
		elsewhere, err := hostaddr.Elsewhere([]netip.AddrPort{netip.AddrPortFrom(neighbor.LocalAddress, 0)})
		if err == nil && len(elsewhere) > 0 {
			err = fmt.Errorf("neighbor %s: this host does not have local_address %s: no session comes up until it has",
				neighbor.Address, neighbor.LocalAddress)
		}
		if err != nil {
			note(p.file.BGP.Neighbor[n].Locate("local_address", err))
		}
	}
}

// restartTime parses graceful_restart: how long neighbors keep the routes of a process that has ended, 0 for not at all.
func restartTime(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > announce.MaxRestart || d%time.Second != 0 {
		return 0, fmt.Errorf("graceful_restart = %q: write whole seconds up to %d, as 60s, or 0s for none", text, announce.MaxRestart/time.Second)
	}
	return d, nil
}

// parseCommunity parses a community such as "65001:100".
func parseCommunity(text string) (uint32, error) {
	upper, lower, _ := strings.Cut(text, ":")
	u, err := strconv.ParseUint(upper, 10, 16)
	l, err2 := strconv.ParseUint(lower, 10, 16)
	if errors.Join(err, err2) != nil {
		return 0, fmt.Errorf("%q is no community: write it as 65001:100", text)
	}
	return uint32(u<<16 | l), nil
}

// serve runs the load balancer and announces its VIPs until ctx ends.
func (p *Plan) serve(ctx context.Context, inst *datapath.Instance, log *slog.Logger) error {
	o := lb.Options{Instance: inst, Log: log}
	if p.bgp == nil {
		// Publish that there are no sessions, so that readers need not take them for unknown.
		stop := publish(ctx, inst, func() []bgpstate.Session { return nil }, log)
		defer stop()
		return lb.Run(ctx, o)
	}
	bgp := *p.bgp
	bgp.Log = log
	// The speaker must outlive ctx, because lb.Run and Close withdraw prefixes after ctx has ended.
	speaker, err := announce.Start(context.WithoutCancel(ctx), bgp)
	if err != nil {
		return err
	}
	o.Announcer = speaker
	stop := publish(ctx, inst, func() []bgpstate.Session { return sessions(speaker) }, log)
	err = lb.Run(ctx, o)
	defer stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawWait)
	defer cancel()
	return errors.Join(err, speaker.Close(ctx))
}

// publishPeriod is the time between two updates of the BGP sessions' state for commands and metrics.
const publishPeriod = 500 * time.Millisecond

// publish stores the state of the sessions, for commands and metrics, until stop is called.
func publish(ctx context.Context, inst *datapath.Instance, sessions func() []bgpstate.Session, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(publishPeriod)
		defer ticker.Stop()
		writer := runstate.NewWriter(bgpstate.Kind, inst.NetNS(), inst.Name())
		defer writer.Close()
		var last []bgpstate.Session
		var plane uint64 // the ID that last was written for; it changes when the data plane is detached and attached again
		var failed bool
		for {
			now, id := sessions(), inst.ID()
			if id != 0 && (id != plane || !reflect.DeepEqual(now, last)) {
				err := writer.Write(id, now)
				if err != nil && !failed {
					log.Warn("the state of the BGP sessions cannot be published for 'culvert lb show'", "err", err)
				}
				if failed = err != nil; !failed {
					last, plane = now, id
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	return func() { cancel(); <-done }
}

func sessions(speaker *announce.Speaker) []bgpstate.Session {
	var all []bgpstate.Session
	for _, n := range speaker.Neighbors() {
		one := bgpstate.Session{
			Neighbor: n.Address, ASN: n.ASN, State: n.State, Since: n.Since, Announced: n.Prefixes, Families: []string{}, Error: n.LastError,
		}
		if n.Carries4 {
			one.Families = append(one.Families, bgpstate.FamilyIPv4)
		}
		if n.Carries6 {
			one.Families = append(one.Families, bgpstate.FamilyIPv6)
		}
		all = append(all, one)
	}
	return all
}
