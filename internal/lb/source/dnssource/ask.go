// SPDX-License-Identifier: Apache-2.0

package dnssource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"culvert/internal/lb"
	"culvert/internal/lb/source"
)

const (
	// longestChain is the largest number of CNAME records that are followed.
	longestChain = 16
	// payload is the size in bytes of the largest answer by UDP: larger ones come by TCP.
	payload = 1232
	// mostTargets bounds the targets of SRV records, each of which is asked for its addresses.
	mostTargets = 1024
)

func joinPort(host, port string) string { return net.JoinHostPort(host, port) }

// asking is one look at everything that a source names.
type asking struct {
	Source
	ctx  context.Context
	ttl  time.Duration // the shortest of all records
	list source.List
}

// all asks for everything.
func (a *asking) all() error {
	host := dns.Fqdn(a.Host)
	if !a.SRV {
		found, err := a.addresses(host)
		if err != nil {
			return err
		}
		for _, addr := range found {
			if err := a.add(lb.Offer{Addr: addr, Weight: 1}); err != nil {
				return err
			}
		}
		return nil
	}
	targets, err := a.targets(host)
	if err != nil {
		return err
	}
	// Of several targets with one address, the largest weight counts, in whatever order they come.
	slices.SortStableFunc(targets, func(a, b *dns.SRV) int { return cmp.Compare(b.Weight, a.Weight) })
	for _, target := range targets {
		found, err := a.addresses(target.Target)
		if err != nil {
			return err
		}
		for _, addr := range found {
			if err := a.add(lb.Offer{Addr: addr, Weight: max(uint32(target.Weight), 1)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds a backend. Several names may have one address, which is then a backend once.
func (a *asking) add(o lb.Offer) error {
	if a.list.Has(o.Addr) {
		return nil
	}
	return a.list.Add(a.Host, o)
}

// addresses returns the addresses of a name, those of the families that are asked for.
func (a *asking) addresses(name string) (all []netip.Addr, err error) {
	var kinds []uint16
	if a.IPv4 {
		kinds = append(kinds, dns.TypeA)
	}
	if a.IPv6 {
		kinds = append(kinds, dns.TypeAAAA)
	}
	for _, kind := range kinds {
		records, err := a.records(name, kind)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			var ip net.IP
			switch r := r.(type) {
			case *dns.A:
				ip = r.A
			case *dns.AAAA:
				ip = r.AAAA
			}
			if addr, ok := netip.AddrFromSlice(ip); ok {
				if kind == dns.TypeA {
					addr = addr.Unmap()
				}
				all = append(all, addr)
			}
		}
	}
	return all, nil
}

// targets returns the SRV records of a name of the best priority that has any: the others are for when these do not answer, which
// health checks find out and DNS does not know.
func (a *asking) targets(name string) (best []*dns.SRV, err error) {
	records, err := a.records(name, dns.TypeSRV)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		srv, ok := r.(*dns.SRV)
		if !ok || srv.Target == "." { // RFC 2782: the service is decidedly not available
			continue
		}
		switch {
		case len(best) > 0 && srv.Priority > best[0].Priority:
			continue
		case len(best) > 0 && srv.Priority < best[0].Priority:
			best = nil
		}
		best = append(best, srv)
	}
	if len(best) > mostTargets {
		return nil, nameError(name, dns.TypeSRV, fmt.Errorf("it has more than %d targets", mostTargets))
	}
	for _, srv := range best {
		if a.Port != 0 && srv.Port != 0 && srv.Port != a.Port {
			return nil, nameError(name, dns.TypeSRV, fmt.Errorf("target %s has port %d, and packets get to backends at the VIP's port %d",
				srv.Target, srv.Port, a.Port))
		}
	}
	return best, nil
}

// records returns the records of a type that a name has, also by way of aliases, none if it has none. A name that does not exist is an
// error.
func (a *asking) records(name string, kind uint16) ([]dns.RR, error) {
	asked := name
	visited := map[string]bool{}
	for {
		answer, err := a.ask(name, kind)
		if err != nil {
			return nil, nameError(asked, kind, err)
		}
		found, next, err := follow(answer, name, kind, visited)
		switch {
		case err != nil:
			return nil, nameError(asked, kind, err)
		case len(found) > 0, next == name:
			a.outlives(answer, found)
			return found, nil
		case answer.Rcode != dns.RcodeSuccess:
			return nil, nameError(asked, kind, fmt.Errorf("%s, to which it is an alias, does not exist", next))
		}
		a.outlives(answer, nil)
		name = next // the resolver has not followed the alias to its end
	}
}

// follow goes through the aliases of an answer. It returns the records of a type, or the name at the end of the aliases.
func follow(answer *dns.Msg, name string, kind uint16, visited map[string]bool) (found []dns.RR, end string, err error) {
	for first := true; ; first = false { // the first name was visited if it is the end of an answer before
		at := strings.ToLower(name)
		if visited[at] && !first {
			return nil, name, fmt.Errorf("its aliases (CNAME) go in a circle at %s", name)
		}
		visited[at] = true
		if len(visited) > longestChain {
			return nil, name, fmt.Errorf("it has more than %d aliases (CNAME) in a row", longestChain)
		}
		alias := ""
		for _, r := range answer.Answer {
			if !strings.EqualFold(r.Header().Name, name) {
				continue
			}
			if r.Header().Rrtype == kind {
				found = append(found, r)
			}
			if c, ok := r.(*dns.CNAME); ok {
				alias = c.Target
			}
		}
		if len(found) > 0 || alias == "" {
			return found, name, nil
		}
		name = alias
	}
}

// outlives shortens the time until the next question to that of an answer.
func (a *asking) outlives(answer *dns.Msg, found []dns.RR) {
	shorten := func(seconds uint32) { a.ttl = min(a.ttl, time.Duration(seconds)*time.Second) }
	for _, r := range answer.Answer {
		shorten(r.Header().Ttl)
	}
	if len(found) > 0 {
		return
	}
	for _, r := range answer.Ns {
		if soa, ok := r.(*dns.SOA); ok { // RFC 2308
			shorten(min(soa.Hdr.Ttl, soa.Minttl))
		}
	}
}

// ask asks the resolvers in turn until one answers.
func (a *asking) ask(name string, kind uint16) (*dns.Msg, error) {
	resolvers, err := a.resolvers()
	if err != nil {
		return nil, err
	}
	for range tries {
		for _, resolver := range resolvers {
			var answer *dns.Msg
			answer, err = a.exchange(resolver, name, kind)
			var final *finalError
			if err == nil || errors.As(err, &final) || a.ctx.Err() != nil {
				return answer, err
			}
		}
	}
	return nil, err
}

// finalError is an error that another resolver would give too.
type finalError struct{ text string }

func (e *finalError) Error() string { return e.text }

// exchange asks one resolver, by UDP and, if the answer is too long for that, by TCP.
func (a *asking) exchange(resolver, name string, kind uint16) (*dns.Msg, error) {
	question := new(dns.Msg)
	question.SetQuestion(name, kind)
	question.SetEdns0(payload, false)
	ctx, cancel := context.WithTimeout(a.ctx, queryTime)
	defer cancel()
	client := &dns.Client{Net: "udp", Timeout: queryTime, UDPSize: payload}
	answer, _, err := client.ExchangeContext(ctx, question, resolver)
	if err == nil && answer.Truncated {
		client = &dns.Client{Net: "tcp", Timeout: queryTime}
		answer, _, err = client.ExchangeContext(ctx, question, resolver)
	}
	var timeout net.Error
	var op *net.OpError
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil, fmt.Errorf("resolver %s does not answer within %v", resolver, queryTime)
	case errors.As(err, &op): // without the port of this side, which differs each time
		return nil, fmt.Errorf("asking resolver %s: %w", resolver, op.Err)
	case err != nil:
		return nil, fmt.Errorf("asking resolver %s: %w", resolver, err)
	case len(answer.Question) != 1 || !strings.EqualFold(answer.Question[0].Name, name) || answer.Question[0].Qtype != kind:
		return nil, fmt.Errorf("resolver %s answers another question", resolver)
	}
	answer.Question[0].Name = name
	switch answer.Rcode {
	case dns.RcodeSuccess:
		return answer, nil
	case dns.RcodeNameError:
		if len(answer.Answer) > 0 {
			return answer, nil // the name exists, as an alias
		}
		return nil, &finalError{fmt.Sprintf("the name does not exist (NXDOMAIN), says resolver %s", resolver)}
	}
	return nil, fmt.Errorf("resolver %s answers with %s", resolver, dns.RcodeToString[answer.Rcode])
}
