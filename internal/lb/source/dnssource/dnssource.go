// SPDX-License-Identifier: Apache-2.0

// Package dnssource takes the backends of a VIP from DNS.
package dnssource

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/miekg/dns"

	"culvert/internal/lb/source"
)

// Source is a name in DNS.
type Source struct {
	// Host is the name.
	Host string
	// IPv4 and IPv6 say whether A and AAAA records are asked for.
	IPv4, IPv6 bool
	// SRV says that the name has SRV records, whose targets are asked for addresses.
	SRV bool
	// Port is the port of the VIP, which that of SRV records has to be, 0 for any.
	Port uint16
	// Resolvers are asked in turn, "192.0.2.53:53". Without any they are those of /etc/resolv.conf.
	Resolvers []string
	// MinTTL and MaxTTL bound the time for which an answer is used before the next is asked for, whatever its TTL.
	MinTTL, MaxTTL time.Duration
}

// Defaults of a Source.
const (
	DefaultMinTTL = time.Second
	DefaultMaxTTL = 5 * time.Minute
)

// Times of questions.
const (
	// queryTime is how long a resolver may take for an answer.
	queryTime = 2 * time.Second
	// tries is how often each resolver is asked.
	tries = 2
	// longestPause bounds the time between two attempts after failures, which doubles from MinTTL on, and that after an answer without
	// backends.
	longestPause = 15 * time.Second
)

// Watch implements source.Source. It asks again when the first record of an answer has come to the end of its time.
func (s Source) Watch(ctx context.Context, tell source.Tell) {
	pause := s.MinTTL
	for {
		a := asking{Source: s, ctx: ctx, ttl: s.MaxTTL}
		err := a.all()
		if ctx.Err() != nil {
			return
		}
		wait := a.wait()
		if err != nil {
			tell(nil, err)
			wait = pause
			pause = min(2*pause, max(longestPause, s.MinTTL))
		} else {
			tell(a.list.All(), nil)
			pause = s.MinTTL
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// wait returns the time until the next look. A name that names nothing is not left alone for long, whatever its TTL: it may not have any.
func (a *asking) wait() time.Duration {
	wait := max(a.ttl, a.MinTTL)
	if len(a.list.All()) == 0 {
		wait = min(wait, max(longestPause, a.MinTTL))
	}
	return wait
}

// resolvers returns the addresses of the resolvers to ask. Those of the file are looked up each time, for it may change.
func (s Source) resolvers() ([]string, error) {
	if len(s.Resolvers) > 0 {
		return s.Resolvers, nil
	}
	c, err := dns.ClientConfigFromFile("/etc/resolv.conf")
	if err != nil {
		return nil, err
	}
	var all []string
	for _, server := range c.Servers {
		all = append(all, joinPort(server, c.Port))
	}
	if len(all) == 0 {
		return nil, errors.New("/etc/resolv.conf names no resolver: set resolver")
	}
	return all, nil
}

// nameError is an error about a name and a type.
func nameError(name string, kind uint16, err error) error {
	return fmt.Errorf("%s %s: %w", dns.TypeToString[kind], name, err)
}

// IsName returns whether a text is a name that can be looked up.
func IsName(text string) bool {
	_, ok := dns.IsDomainName(text)
	for _, r := range text {
		ok = ok && r > ' ' && r < 0x7f && r != '\\'
	}
	return ok && text != "."
}
