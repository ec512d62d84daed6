// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net/netip"

	"culvert/internal/host/hostaddr"
	"culvert/internal/host/netfilter"
)

// synFacts are what answers to SYNs for protected services depend on: sysctls, what netfilter.Synproxy says, and the
// addresses of this host.
type synFacts struct {
	cookies, timestamps string
	loose               string // empty without connection tracking
	rule                bool
	ruleErr             error
	elsewhere           []netip.AddrPort // of the services said to be on this host, those whose address it has not
	addrErr             error
}

func readSyn(o Options) synFacts {
	s := synFacts{
		cookies: sysctl("net/ipv4/tcp_syncookies"), timestamps: sysctl("net/ipv4/tcp_timestamps"),
		loose: sysctl("net/netfilter/nf_conntrack_tcp_loose"),
	}
	if o.Forwarded {
		s.rule, s.ruleErr = netfilter.Synproxy()
	}
	s.elsewhere, s.addrErr = hostaddr.Elsewhere(o.Protected)
	return s
}

// checkSyn looks at what protected services need: those on this host, and those behind a SYNPROXY rule.
func checkSyn(s synFacts, local []netip.AddrPort, forwarded bool) []Finding {
	var found []Finding
	if len(local) > 0 {
		found = append(found, checkSynAddress(s), checkSynCookies(s.cookies))
	}
	if forwarded {
		found = append(found, checkSynproxy(s))
	}
	for _, f := range []*Finding{
		checkSynTimestamps(s.timestamps, len(local) > 0, forwarded), checkSynConntrack(s.loose, local, forwarded),
	} {
		if f != nil {
			found = append(found, *f)
		}
	}
	return found
}

func checkSynAddress(s synFacts) Finding {
	f := Finding{Check: "syn-address", Finding: "this host has the addresses of its protected services"}
	switch n := len(s.elsewhere); {
	case s.addrErr != nil:
		f.Status, f.Finding = Warn, fmt.Sprintf("cannot be seen: %v", s.addrErr)
	case n == 0:
		return f
	default:
		more := ""
		if n > 1 {
			more = fmt.Sprintf(" (and %d more)", n-1)
		}
		f.Status = Warn
		f.Finding = fmt.Sprintf("%s is protected as a service on this host, which has no such address%s: "+
			"give the host the address, or protect with --forwarded what is behind it", s.elsewhere[0], more)
	}
	f.Command = "ip -brief address"
	return f
}

func checkSynCookies(value string) Finding {
	f := Finding{Check: "syn-cookies", Finding: "each SYN to a protected service gets one"}
	switch value {
	case "2":
		return f
	case "1":
		f.Status = Warn
		f.Finding = "on demand: SYNs fill the queue of a protected service before any is answered with one"
	default:
		f.Status = Fail
		f.Finding = "off: the kernel takes none back, protected services are not protected"
	}
	f.Command = "sysctl -w net.ipv4.tcp_syncookies=2"
	return f
}

// checkSynTimestamps has one answer for both kinds of service. Theirs on this host go without much, but rightly so.
func checkSynTimestamps(value string, local, forwarded bool) *Finding {
	f := &Finding{Check: "syn-timestamps"}
	switch {
	case forwarded && value == "0":
		f.Status = Warn
		f.Finding = "off: servers reached through a synproxy rule get neither SACK nor scaled windows"
		f.Command = "sysctl -w net.ipv4.tcp_timestamps=1"
	case local && value == "2":
		f.Finding = "without offset: connections with a cookie have SACK and scaled windows"
	case local:
		f.Finding = "off or with an offset: connections with a cookie have neither SACK nor windows above 64 KiB, " +
			"as they would with net.ipv4.tcp_timestamps = 2"
	default:
		return nil
	}
	return f
}

func checkSynproxy(s synFacts) Finding {
	f := Finding{Check: "synproxy", Finding: "a rule takes cookies for forwarded services"}
	switch {
	case s.ruleErr != nil:
		f.Status, f.Finding = Warn, fmt.Sprintf("cannot be seen: %v", s.ruleErr)
		f.Command = "sudo culvert doctor"
	case !s.rule:
		f.Status = Fail
		f.Finding = "no synproxy rule in nftables: nothing takes the cookies for forwarded services, no client gets through: " +
			"add one to a chain at forward, and to one at prerouting (priority raw) 'tcp flags syn / fin,syn,rst,ack notrack'"
		f.Command = "nft add rule ip TABLE CHAIN tcp dport PORT ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm"
	}
	return f
}

// checkSynConntrack has one answer for both kinds of service, which want the opposite of each other.
func checkSynConntrack(loose string, local []netip.AddrPort, forwarded bool) *Finding {
	f := &Finding{Check: "syn-conntrack"}
	switch {
	case forwarded && loose != "0":
		f.Status = Fail
		f.Finding = "connection tracking takes a client's first packet for a connection: it goes past the synproxy rule"
		f.Command = "sysctl -w net.netfilter.nf_conntrack_tcp_loose=0"
	case forwarded && len(local) > 0:
		f.Status = Warn
		f.Finding = "0, as the synproxy rule needs it: to connection tracking the first packet of a client to a service on " +
			"this host is invalid then, and rules may drop it: have a synproxy rule at input for these too, and protect them with --forwarded"
		f.Command = fmt.Sprintf("culvert filter protect %s --forwarded", local[0])
	case forwarded:
		f.Finding = "connection tracking leaves packets of unknown connections to the synproxy rule"
	case len(local) > 0 && loose == "0":
		f.Status = Warn
		f.Finding = "connection tracking calls the first packet that it sees of a client invalid: rules may drop it"
		f.Command = "sysctl -w net.netfilter.nf_conntrack_tcp_loose=1"
	default:
		return nil
	}
	return f
}
