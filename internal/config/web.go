// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// Web is the page to look at.
type Web struct {
	// Listen is the address that serves it, such as "127.0.0.1:9480".
	Listen string `toml:"listen"`
}

// WebAddress returns the address of the page, "" if there is none.
func (n *Node) WebAddress() string {
	if n.Web == nil {
		return ""
	}
	return n.Web.Listen
}

// check refuses an address without a port that a browser can be given.
func (w *Web) check(at Position) error {
	if w == nil {
		return nil
	}
	if w.Listen == "" {
		return at.Locate("", errors.New(`[web] has no listen: give the page an address, as listen = "127.0.0.1:9480", or delete [web]`))
	}
	_, port, err := net.SplitHostPort(w.Listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return at.Locate("listen", fmt.Errorf("listen = %q: use address:port", w.Listen))
	}
	return nil
}

// checkWebMetrics refuses page and metrics at one address.
func (n *Node) checkWebMetrics() error {
	web, metrics := n.WebAddress(), n.Metrics
	if !SameListener(web, metrics) {
		return nil
	}
	return n.In("web").Locate("listen", fmt.Errorf("listen = %q is the address of metrics = %q: use another port", web, metrics))
}

// SameListener tells whether one process cannot listen at both addresses, as far as their text says. The text "" is no address.
func SameListener(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || everywhere(hostA) || everywhere(hostB)
}

// everywhere tells whether a listener with the host has all addresses.
func everywhere(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "" || err == nil && a.IsUnspecified()
}

// Loopback tells whether only this machine reaches the address.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}
