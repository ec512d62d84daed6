// SPDX-License-Identifier: Apache-2.0

package filterset

import (
	"fmt"
	"net/netip"
)

// Endpoints is a set of addresses with ports. It maps a member to the time when it expires.
type Endpoints map[netip.AddrPort]Time

// parse adds an entry.
func (e Endpoints) parse(entry string, until Time) error {
	at, err := netip.ParseAddrPort(entry)
	if err != nil {
		return fmt.Errorf("%.60q is no address with a port: write it as 192.0.2.1:53 or [2001:db8::1]:53", entry)
	}
	if at.Addr().Zone() != "" {
		return fmt.Errorf("address %.60s has a zone: leave %q out", entry, "%"+at.Addr().Zone())
	}
	if at.Port() == 0 {
		return fmt.Errorf("%s has port 0, which no packet has: use 1 to 65535", entry)
	}
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	e[at] = max(e[at], until)
	return nil
}

// Add adds the members of another set. A member of both keeps the later time.
func (e Endpoints) Add(other Endpoints) {
	for at, until := range other {
		e[at] = max(e[at], until)
	}
}

// Remove removes the members of another set.
func (e Endpoints) Remove(other Endpoints) {
	for at := range other {
		delete(e, at)
	}
}

// Missing returns a member of another set that e does not have. It is false if there is none.
func (e Endpoints) Missing(other Endpoints) (netip.AddrPort, bool) {
	for at := range other {
		if _, ok := e[at]; !ok {
			return at, true
		}
	}
	return netip.AddrPort{}, false
}

// Expire removes the members that have expired.
func (e Endpoints) Expire(now Time) {
	for at, until := range e {
		if until <= now {
			delete(e, at)
		}
	}
}
