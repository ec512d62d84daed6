// SPDX-License-Identifier: Apache-2.0

package netfilter

import "testing"

func TestSynproxy(t *testing.T) {
	for name, c := range map[string]struct {
		commands string
		want     bool
	}{
		"none":  {"true", false},
		"other": {"nft add table ip t; nft add chain ip t c; nft add rule ip t c counter comment '\"synproxy\"'", false},
		"nft":   {"nft add table ip t; nft add chain ip t c '{ type filter hook forward priority 0; }'; nft add rule ip t c tcp dport 80 synproxy mss 1460 wscale 7 timestamp sack-perm", true},
		"ip6tables": {"ip6tables-nft -A FORWARD -p tcp --dport 80 -m conntrack --ctstate INVALID,UNTRACKED " +
			"-j SYNPROXY --mss 1460 --wscale 7 --timestamp --sack-perm", true},
	} {
		t.Run(name, func(t *testing.T) {
			inNamespace(t)
			sh(t, c.commands)
			if got, err := Synproxy(); err != nil || got != c.want {
				t.Errorf("%v, %v, not %v", got, err, c.want)
			}
		})
	}
}
