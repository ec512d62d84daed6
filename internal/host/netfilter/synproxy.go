// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// Synproxy reports whether a rule of nftables answers SYNs for servers behind this host: nft's synproxy, or SYNPROXY of
// iptables-nft. It does not look at legacy iptables.
func Synproxy() (bool, error) {
	_, present, err := nftGeneration()
	if err != nil || !present {
		return false, err
	}
	found := false
	err = dump(unix.NFT_MSG_GETRULE, unix.NFPROTO_UNSPEC, nil, func(_ uint8, a attributes) {
		for _, name := range []string{"synproxy\x00", "SYNPROXY\x00"} {
			found = found || bytes.Contains(a[unix.NFTA_RULE_EXPRESSIONS], []byte(name))
		}
	})
	if err != nil {
		return false, failed("list the nftables rules", err)
	}
	return found, nil
}
