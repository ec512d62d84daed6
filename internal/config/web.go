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

// check refuses what is no address of a page.
func (w *Web) check(at Position) error {
	if w == nil {
		return nil
	}
	if w.Listen == "" {
		return at.Locate("", errors.New(`[web] has no listen: give the page an address, as listen = "127.0.0.1:9480", or delete [web]`))
	}
	if err := ListenAddress(w.Listen); err != nil {
		return at.Locate("listen", err)
	}
	return nil
}

// ListenAddress returns the error with which [web] refuses what is no address with a port that a browser can be given.
func ListenAddress(listen string) error {
	_, port, err := net.SplitHostPort(listen)
	number := uint64(0)
	if err == nil {
		number, err = strconv.ParseUint(port, 10, 16)
	}
	switch {
	case err != nil:
		return fmt.Errorf("listen = %q: use address:port", listen)
	case number == 0:
		return fmt.Errorf("listen = %q: port 0 is any that is free, so nobody would know where the page is: name one, such as 9480", listen)
	}
	return nil
}

// WebURL returns what a browser of this machine is given for the page at an address.
func WebURL(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	a, err := netip.ParseAddr(host)
	switch {
	case host == "" || err == nil && a.Unmap() == netip.IPv4Unspecified():
		host = "127.0.0.1"
	case err == nil && a == netip.IPv6Unspecified():
		host = "::1"
	}
	return "http://" + net.JoinHostPort(host, port) + "/"
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
