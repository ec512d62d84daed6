// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/etcd"
	"culvert/internal/config"
)

// issuedDir has a directory for each certificate that was issued, to be copied to its owner.
const issuedDir = "issued"

// Door lets users in and out, with the authority of a cluster and the certificate of root.
type Door struct {
	authority *Authority
	table     *config.Cluster
	client    *clientv3.Client
	keys      cluster.Keys
}

// OpenDoor reads the directory of a cluster, and connects to its etcd. Its error says if no member lets root in.
func OpenDoor(ctx context.Context, dir string) (*Door, error) {
	a, err := Open(dir)
	if err != nil {
		return nil, err
	}
	at := filepath.Join(dir, TableFile)
	table, err := config.ReadCluster(at)
	if err != nil {
		return nil, err
	}
	if table == nil || table.Name != a.Cluster {
		return nil, fmt.Errorf("%s has no table [cluster] with name = %q", at, a.Cluster)
	}
	var config *tls.Config
	if table.TLS != nil {
		if config, err = etcd.TLS(table.TLS); err != nil {
			return nil, err
		}
	}
	if err := etcd.Probe(ctx, table.Endpoints, config); err != nil {
		return nil, err
	}
	client, err := etcd.Connect(table)
	if err != nil {
		return nil, err
	}
	return &Door{a, table, client, cluster.KeysOf(a.Cluster)}, nil
}

// Close ends the connection.
func (d *Door) Close() { _ = d.client.Close() }

// callTime bounds all that a verb asks of etcd.
const callTime = 15 * time.Second

// Admit makes a certificate for a name of a kind and lets its user in. It returns the directory to copy to the owner. A name that has
// a certificate is refused unless again is set; that one stays good until it is revoked.
func (d *Door) Admit(ctx context.Context, kind, name string, again bool) (u User, dir string, err error) {
	if err := cluster.CheckName(name); err != nil {
		return u, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := Enable(ctx, d.client, d.keys); err != nil {
		return u, "", err
	}
	all, err := List(ctx, d.client, d.keys)
	if err != nil {
		return u, "", err
	}
	if there := of(all, kind, name); len(there) > 0 && !again {
		return u, "", fmt.Errorf("%s %s has a certificate: --again makes another one beside it, and 'culvert cluster revoke %s' ends it", kind, name, there[0].User)
	}
	u = NewUser(kind, name)
	dir = d.issued(u)
	let := false
	err = whole(dir, func(made string) error {
		if _, err := d.authority.Issue(made, kind, u.String(), nil); err != nil {
			return err
		}
		node := ""
		if kind == KindNode {
			node = name
		}
		comment := fmt.Sprintf("The certificate of %s %s, with ID %s.", kind, name, u.ID)
		if err := d.authority.writeTable(made, kind, d.table.Endpoints, node, comment); err != nil {
			return err
		}
		err := Allow(ctx, d.client, d.keys, u)
		let = err == nil
		return err
	})
	if err != nil && let {
		_, undo := Revoke(context.WithoutCancel(ctx), d.client, u)
		err = errors.Join(err, undo)
	}
	return u, dir, err
}

// List returns the users of the cluster.
func (d *Door) List(ctx context.Context) ([]Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	all, err := List(ctx, d.client, d.keys)
	for i := range all {
		all[i].Until = d.until(all[i].User)
	}
	return all, err
}

// Expel revokes all certificates of a name, or one: NAME, KIND:NAME or KIND:NAME:ID. It returns those that it has revoked. The state
// of a node that has no other certificate goes with it.
func (d *Door) Expel(ctx context.Context, what string) ([]User, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	all, err := List(ctx, d.client, d.keys)
	if err != nil {
		return nil, err
	}
	meant, err := match(all, what)
	if err != nil {
		return nil, err
	}
	var gone []User
	for _, u := range meant {
		there, err := Revoke(ctx, d.client, u)
		if err != nil {
			return gone, err
		}
		if there {
			gone = append(gone, u)
		}
	}
	if u := meant[0]; u.Kind == KindNode && len(of(all, KindNode, u.Name)) == len(meant) {
		return gone, Forget(ctx, d.client, d.keys, u.Name)
	}
	return gone, nil
}

// match returns the users that are meant, all of one name and kind.
func match(all []Grant, what string) ([]User, error) {
	var meant []User
	for _, g := range all {
		u := g.User
		if what != u.Name && what != u.Kind+":"+u.Name && what != u.String() {
			continue
		}
		if len(meant) > 0 && meant[0].Kind != u.Kind {
			return nil, fmt.Errorf("%s is a %s and a %s: write %[2]s:%[1]s or %[3]s:%[1]s", what, meant[0].Kind, u.Kind)
		}
		meant = append(meant, u)
	}
	if len(meant) == 0 {
		if strings.HasPrefix(what, Root) {
			return nil, fmt.Errorf("nobody is called %s; root cannot be revoked, since no one could let anybody in any more: who has lost its key makes a new cluster", what)
		}
		return nil, fmt.Errorf("nobody is called %s: 'culvert cluster list' names all", what)
	}
	return meant, nil
}

// of returns the users of a kind and name.
func of(all []Grant, kind, name string) (some []Grant) {
	for _, g := range all {
		if g.Kind == kind && g.Name == name {
			some = append(some, g)
		}
	}
	return some
}

// issued is the directory of the certificate of a user.
func (d *Door) issued(u User) string {
	return filepath.Join(d.authority.Dir, issuedDir, u.Kind+"-"+u.Name+"-"+u.ID)
}

// until returns when the certificate of a user ends, nil if its copy is not here.
func (d *Door) until(u User) *time.Time {
	text, err := os.ReadFile(FilesIn(d.issued(u), u.Kind).Cert)
	if err != nil {
		return nil
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return &c.NotAfter
}
