// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"

	"culvert/internal/scion/scionpkt"
)

// liedAbout are the reasons that reasonLies change. There are more seeds of the rare ones.
var liedAbout = []string{
	"drop filter-tags", "drop filter-headers", "drop scion-interface", "drop scion-bfd", "punt scion-bfd", "drop lb-unclaimed",
	"drop lb-empty", "pass lb-empty", "fwd lb-unreachable",
}

// lieCorpus returns the corpus and many variants of the seeds of liedAbout, with changes and other TTLs.
func (b *bed) lieCorpus(rng *rand.Rand) []trial {
	all := b.corpus(rng, 100)
	choices := make([]byte, 40)
	for _, s := range b.seeds() {
		if !slices.Contains(liedAbout, s.reason) {
			continue
		}
		for again := range 12 {
			for n := range choices {
				choices[n] = byte(rng.Uint32())
			}
			all = append(all, mutate(s.trial(b.net), &script{choices}, all))
			s.ttl = byte(60 - again)
			all = append(all, s.trial(b.net))
		}
	}
	for n := 0; n < 100; {
		s := scionpkt.Random(rng, b.net)
		f, err := s.Build()
		if err != nil {
			continue
		}
		l, ok := scionpkt.Locate(f)
		if !ok || len(f) < l.SCION+12 {
			continue
		}
		tr := trial{frame: f, in: b.net.Links[s.Link].Device}
		if n%3 == 0 {
			tr = b.astray(tr)
		} else {
			asBFD(f, l, s.Link, n%3 == 1)
		}
		all = append(all, tr)
		n++
	}
	return all
}

// instead changes one reason into another, with its effect on the frame.
func instead(from, to string) func(trial, *outcome) bool {
	return func(tr trial, o *outcome) bool {
		if o.reason != from {
			return false
		}
		o.reason, o.action, o.frame = to, xdpPass, bytes.Clone(tr.frame)
		if strings.HasPrefix(to, "drop ") {
			o.action = xdpDrop
		}
		return true
	}
}

// wrongly gives a packet a reason to drop, if it has no reason of the same stage.
func wrongly(reason, unless string, stage string) func(trial, *outcome) bool {
	return func(_ trial, o *outcome) bool {
		if o.reason == reason || !strings.Contains(o.reason, stage) || unless != "" && strings.HasPrefix(o.reason, unless) {
			return false
		}
		o.reason, o.action = reason, xdpDrop
		return true
	}
}

// misanswered changes an ICMP error, from its type on, and fixes all lengths and checksums.
func misanswered(change func(v *view, icmp []byte) int) func(trial, *outcome) bool {
	return func(_ trial, o *outcome) bool {
		if o.reason != "fwd lb-unreachable" {
			return false
		}
		v := decode(o.frame)
		less := change(&v, v.packet[v.head:])
		o.frame = o.frame[:v.l3+len(v.packet)-less]
		setLength(o.frame, v.l3, v.ip)
		fixIP(o.frame)
		fixTransport(o.frame)
		return true
	}
}

// unasked answers a packet with a well-formed ICMP error, as if no one had the port.
func unasked(from string) func(trial, *outcome) bool {
	return func(tr trial, o *outcome) bool {
		in := decode(tr.frame)
		if o.reason != from || in.ip == 0 {
			return false
		}
		ports := in.l4proto == protoTCP || in.l4proto == protoUDP
		head, proto, most := []byte{3, 2, 0, 0, 0, 0, 0, 0}, byte(protoICMP), 576
		if ports {
			head[1] = 3
		}
		if in.ip == 6 {
			head, proto, most = []byte{4, 1, 0, 0, 0, 0, 0, 6}, protoICMPv6, 1280
			if ports {
				head = []byte{1, 4, 0, 0, 0, 0, 0, 0}
			}
		}
		quote := in.packet[:min(len(in.packet), most-len(head)-map[int]int{4: 20, 6: 40}[in.ip])]
		f := slices.Concat(tr.frame[6:12], tr.frame[:6], tr.frame[12:in.l3])
		if in.ip == 4 {
			f = slices.Concat(f, []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, proto, 0, 0})
		} else {
			f = slices.Concat(f, []byte{0x60, 0, 0, 0, 0, 0, proto, 64})
		}
		f = slices.Concat(f, in.dst.AsSlice(), in.src.AsSlice(), head, quote)
		setLength(f, in.l3, in.ip)
		fixIP(f)
		fixTransport(f)
		o.reason, o.action, o.frame = "fwd lb-unreachable", xdpTX, f
		return true
	}
}

// only applies a lie where the outcome is wrong for certain. Some packets with a reason could have others too.
func only(where func(tr trial, v *view) bool, tell func(trial, *outcome) bool) func(trial, *outcome) bool {
	return func(tr trial, o *outcome) bool {
		v := decode(tr.frame)
		return where(tr, &v) && tell(tr, o)
	}
}

// reasonLies are lies about reasons to drop packets that would otherwise be forwarded, and about answers.
func (b *bed) reasonLies() []lie {
	const tags, headers = "drop filter-tags", "drop filter-headers"
	const misled, bfd = "drop scion-interface", "drop scion-bfd"
	const unclaimed, empty, unreachable = "drop lb-unclaimed", "drop lb-empty", "fwd lb-unreachable"
	whole := func(tr trial, v *view) bool { return v.ip != 0 && tr.linear() >= min(len(tr.frame), v.l3+128) }
	return []lie{
		{"past too many tags", instead(tags, "pass other")},
		{"too many tags filtered", instead(tags, "drop filter")},
		{"too many tags taken for headers", instead(tags, headers)},
		{"few tags taken for too many", wrongly(tags, "", " ")},
		{"past headers that are not seen", instead(headers, "pass other")},
		{"headers that are not seen filtered", instead(headers, "drop filter")},
		{"headers taken for tags", instead(headers, tags)},
		{"headers that are seen taken for others", wrongly(headers, "", " ")},

		{"by another interface, passed", instead(misled, "pass other")},
		{"by another interface, punted", instead(misled, "punt scion-onehop")},
		{"by another interface, of a bad path", instead(misled, "drop scion-path")},
		{"by another interface, forwarded", func(tr trial, o *outcome) bool {
			if o.reason != misled {
				return false
			}
			o.reason, o.action = "fwd scion-in", xdpRedirect
			return true
		}},
		{"by its own interface, refused", wrongly(misled, "", " scion")},
		{"BFD of others, punted", instead(bfd, "punt scion-bfd")},
		{"BFD of others, punted for its path", instead(bfd, "punt scion-empty")},
		{"BFD of others, passed", instead(bfd, "pass other")},
		{"BFD of others, of a bad path", instead(bfd, "drop scion-path")},
		{"BFD of the session, dropped", instead("punt scion-bfd", bfd)},
		{"BFD of the session, punted for its path", instead("punt scion-bfd", "punt scion-empty")},
		{"what is no BFD, dropped as such", wrongly(bfd, "punt scion-bfd", " scion")},
		{"what is no BFD, punted as such", func(tr trial, o *outcome) bool {
			return strings.Contains(o.reason, " scion") && !strings.HasSuffix(o.reason, "scion-bfd") && o.reason != misled &&
				instead(o.reason, "punt scion-bfd")(tr, o)
		}},

		{"unclaimed, passed", only(whole, instead(unclaimed, "pass other"))},
		{"unclaimed, routed away", only(whole, func(tr trial, o *outcome) bool {
			if o.reason != unclaimed {
				return false
			}
			o.reason, o.action = "fwd route", xdpRedirect
			return true
		})},
		{"unclaimed, taken for a service's", only(whole, instead(unclaimed, empty))},
		{"unclaimed, answered", only(func(tr trial, v *view) bool { return v.ip != 0 && (silent(v) || nobody(v.src)) }, unasked(unclaimed))},
		{"a flow, taken for unclaimed", wrongly(unclaimed, "fwd lb-unreachable", "fwd lb-flow")},
		{"empty, passed to the kernel", instead(empty, "pass lb-empty")},
		{"empty, passed", only(whole, instead(empty, "pass other"))},
		{"empty, taken for unclaimed", only(whole, instead(empty, unclaimed))},
		{"empty, answered", only(whole, unasked(empty))},
		{"empty, dropped where nobody would send it", instead("pass lb-empty", empty)},
		{"a flow, taken for one without a backend", wrongly(empty, "fwd lb-unreachable", "fwd lb-flow")},
		{"to be answered, dropped", instead(unreachable, unclaimed)},
		{"to be answered, taken for a service's", instead(unreachable, empty)},
		{"to be answered, passed", only(whole, instead(unreachable, "pass other"))},
		{"a flow, answered", unasked("fwd lb-flow")},
		{"answered as an echo", func(_ trial, o *outcome) bool {
			ours := o.reason == unreachable
			o.reason = "fwd lb-echo"
			return ours
		}},
		{"answered as too big", func(_ trial, o *outcome) bool {
			ours := o.reason == unreachable
			o.reason = "fwd lb-too-big"
			return ours
		}},
		{"answered with another type", misanswered(func(_ *view, icmp []byte) int { icmp[0] ^= 8; return 0 })},
		{"answered with another code", misanswered(func(_ *view, icmp []byte) int { icmp[1] ^= 1; return 0 })},
		{"answered with another word", misanswered(func(_ *view, icmp []byte) int { icmp[7] ^= 1; return 0 })},
		{"answered with another quote", misanswered(func(_ *view, icmp []byte) int { icmp[len(icmp)-1] ^= 1; return 0 })},
		{"answered with less of it", misanswered(func(*view, []byte) int { return 1 })},
		{"answered from elsewhere", misanswered(func(v *view, _ []byte) int { v.packet[map[int]int{4: 15, 6: 23}[v.ip]] ^= 1; return 0 })},
		{"answered to another", misanswered(func(v *view, _ []byte) int { v.packet[map[int]int{4: 19, 6: 39}[v.ip]] ^= 1; return 0 })},
		{"answered with another TTL", misanswered(func(v *view, _ []byte) int { v.packet[map[int]int{4: 8, 6: 7}[v.ip]] = 255; return 0 })},
		{"answered with a wrong checksum", func(_ trial, o *outcome) bool {
			v := decode(o.frame)
			if o.reason != unreachable {
				return false
			}
			v.packet[v.head+2] ^= 1
			return true
		}},
	}
}
