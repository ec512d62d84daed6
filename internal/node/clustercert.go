// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	"culvert/internal/cluster/access"
	"culvert/internal/cluster/etcd"
	"culvert/internal/config"
)

// checkCertificate refuses a certificate that is not of the node which the file names: etcd would take nothing that the node writes, and nobody
// would see it. Connecting says what is wrong with one that cannot be read, and one that culvert has not made has names of its own.
func checkCertificate(table *config.Cluster) error {
	if table.TLS == nil {
		return nil
	}
	cert, err := etcd.Certificate(table.TLS)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	user, is := access.ParseUser(cert.Subject.CommonName)
	switch {
	case !is || user.Kind == access.KindNode && user.Name == table.Node:
		return nil
	case user.Kind != access.KindNode:
		err = fmt.Errorf("the certificate %s is that of %s %s, not of a node: 'culvert cluster enrol %s' makes one", table.TLS.Cert, user.Kind, user.Name, table.Node)
	default:
		err = fmt.Errorf("the certificate %s is that of node %s, and node here is %s: write node = %q, or 'culvert cluster enrol %[3]s' makes one of this name",
			table.TLS.Cert, user.Name, table.Node, user.Name)
	}
	return table.Locate("node", err)
}
