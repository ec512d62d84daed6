// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net/netip"

	"culvert/internal/host/hostaddr"
	"culvert/internal/host/netfilter"
)

// synFacts are the facts that the answers to SYNs of protected services depend on.
type synFacts struct {
	// cookies and timestamps are the sysctls net.ipv4.tcp_syncookies and tcp_timestamps.
	cookies, timestamps string
	// loose is the sysctl nf_conntrack_tcp_loose, "" without connection tracking.
	loose string
	// rule tells whether nftables has a synproxy rule. ruleErr is the error of looking for one.
	rule    bool
	ruleErr error
	// notLocal are the services protected as services on this host whose address this host does not have. addrErr is the
	// error of looking at the addresses.
	notLocal []netip.AddrPort
	addrErr  error
}

func readSyn(o Options) synFacts {
	s := synFacts{
		cookies: sysctl("net/ipv4/tcp_syncookies"), timestamps: sysctl("net/ipv4/tcp_timestamps"),
		loose: sysctl("net/netfilter/nf_conntrack_tcp_loose"),
	}
	if o.Forwarded {
		s.rule, s.ruleErr = netfilter.Synproxy()
	}
	s.notLocal, s.addrErr = hostaddr.Elsewhere(o.Protected)
	return s
}

// checkSyn makes all checks of protected services. local are those on this host; forwarded tells whether there are others,
// which need a synproxy rule; ipRouter tells whether an IP router is configured or runs, whose packets meet no rule at forward.
func checkSyn(s synFacts, local []netip.AddrPort, forwarded, ipRouter bool) []Finding {
	var found []Finding
	if len(local) > 0 {
		found = append(found, checkSynAddress(s), checkSynCookies(s.cookies))
	}
	if forwarded {
		found = append(found, checkSynproxy(s, ipRouter))
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
	switch n := len(s.notLocal); {
	case s.addrErr != nil:
		f.Status, f.Finding = Warn, fmt.Sprintf("the addresses of this host cannot be read: %v", s.addrErr)
	case n == 0:
		return f
	default:
		more := ""
		if n > 1 {
			more = fmt.Sprintf(" (and %d more)", n-1)
		}
		f.Status = Warn
		f.Finding = fmt.Sprintf("%s is protected as a service on this host, which has no such address%s: "+
			"give the host the address, or use --forwarded for a service behind it", s.notLocal[0], more)
	}
	f.Command = "ip -brief address"
	return f
}

func checkSynCookies(value string) Finding {
	f := Finding{Check: "syn-cookies", Finding: "each SYN to a protected service is answered with a cookie"}
	switch value {
	case "2":
		return f
	case "1":
		f.Status = Warn
		f.Finding = "on demand: SYNs fill the queue of a protected service before the kernel uses cookies"
	default:
		f.Status = Fail
		f.Finding = "off: the kernel accepts no cookies, so protected services are not protected"
	}
	f.Command = "sysctl -w net.ipv4.tcp_syncookies=2"
	return f
}

// checkSynTimestamps judges net.ipv4.tcp_timestamps for both kinds of service. For services on this host no value is a
// mistake: without timestamps connections only lack SACK and scaled windows.
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

func checkSynproxy(s synFacts, ipRouter bool) Finding {
	f := Finding{Check: "synproxy", Finding: "a synproxy rule accepts the cookies of forwarded services"}
	switch {
	case s.ruleErr != nil:
		f.Status, f.Finding = Warn, fmt.Sprintf("the rules of nftables cannot be read: %v", s.ruleErr)
		f.Command = "sudo culvert doctor"
	case !s.rule:
		f.Status = Fail
		f.Finding = "no synproxy rule in nftables: nothing accepts the cookies of forwarded services, and no client gets through: "
		if ipRouter {
			f.Finding += "add one to a chain at input, which serves those on this host; to others the IP router forwards past every rule: " +
				"'culvert filter unprotect' them"
		} else {
			f.Finding += "add one to a chain at forward, and to one at prerouting (priority raw) 'tcp flags syn / fin,syn,rst,ack notrack'"
		}
		f.Command = "nft add rule ip TABLE CHAIN tcp dport PORT ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm"
	}
	return f
}

// checkSynConntrack judges nf_conntrack_tcp_loose for both kinds of service. Services behind a synproxy rule need it to be 0,
// services on this host may need it to be 1.
func checkSynConntrack(loose string, local []netip.AddrPort, forwarded bool) *Finding {
	f := &Finding{Check: "syn-conntrack"}
	switch {
	case forwarded && loose != "0":
		f.Status = Fail
		f.Finding = "connection tracking takes a client's first packet for part of a connection, so the packet does not reach the synproxy rule"
		f.Command = "sysctl -w net.netfilter.nf_conntrack_tcp_loose=0"
	case forwarded && len(local) > 0:
		f.Status = Warn
		f.Finding = "0, as the synproxy rule needs it: connection tracking then calls the first packet of a client to a service on " +
			"this host invalid, and rules may drop it: add a synproxy rule at input for these services, and protect them with --forwarded"
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
