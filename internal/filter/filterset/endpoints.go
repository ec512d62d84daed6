// SPDX-License-Identifier: Apache-2.0

package filterset

import (
	"fmt"
	"net/netip"
)

// Endpoints is a set of addresses with ports, and when they end.
type Endpoints map[netip.AddrPort]Time

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

// Add adds the members of another set. One that is in both stays for the longer of the two times.
func (e Endpoints) Add(other Endpoints) {
	for at, until := range other {
		e[at] = max(e[at], until)
	}
}

// Remove takes the members of another set out.
func (e Endpoints) Remove(other Endpoints) {
	for at := range other {
		delete(e, at)
	}
}

// Missing returns a member of another set that is not in this one.
func (e Endpoints) Missing(other Endpoints) (netip.AddrPort, bool) {
	for at := range other {
		if _, ok := e[at]; !ok {
			return at, true
		}
	}
	return netip.AddrPort{}, false
}

// Expire takes out the members whose time is over.
func (e Endpoints) Expire(now Time) {
	for at, until := range e {
		if until <= now {
			delete(e, at)
		}
	}
}
