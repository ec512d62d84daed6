// SPDX-License-Identifier: Apache-2.0

package access

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"culvert/internal/host/trust"
)

// DefaultDir is where the files of a cluster are.
const DefaultDir = "/etc/culvert/cluster"

// TableFile has the table [cluster] of whoever has the directory.
const TableFile = "cluster.toml"

// MemberFile and RootFile are what the files of the certificates of members and of root begin with.
const (
	MemberFile = "member"
	RootFile   = "root"
)

// Create makes the directory of a new cluster: its authority, the certificate of etcd's members, that of root, and root's table
// [cluster]. endpoints are the URLs of members for clients, and hosts further addresses and names of members. A directory that has
// files is refused.
func Create(dir, name string, endpoints, hosts []string) error {
	all, err := memberHosts(endpoints, hosts)
	if err != nil {
		return err
	}
	return whole(dir, func(made string) error {
		a, err := Init(made, name)
		if err != nil {
			return err
		}
		if _, err := a.Issue(made, MemberFile, MemberName, all); err != nil {
			return err
		}
		if _, err := a.Issue(made, RootFile, Root, nil); err != nil {
			return err
		}
		return a.writeTable(made, RootFile, endpoints, "", "For 'culvert cluster' and 'culvert fleet', with the certificate of root.")
	})
}

// RenewMember makes a new certificate for members, of the same addresses and names and of more. The one before stays good.
func (a *Authority) RenewMember(hosts []string) (Files, error) {
	old, err := Load(FilesIn(a.Dir, MemberFile))
	if err != nil {
		return Files{}, err
	}
	if hosts, err = memberHosts(nil, hosts); err != nil {
		return Files{}, err
	}
	hosts = append(hosts, old.Leaf.DNSNames...)
	for _, ip := range old.Leaf.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	slices.Sort(hosts)
	return a.Issue(a.Dir, MemberFile, MemberName, slices.Compact(hosts))
}

// whole makes a directory that only root may see with what do puts into it, or not at all. It may be there, empty.
func whole(dir string, do func(made string) error) (err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s has files already, and nothing is overwritten: name another directory with --dir, or move it away", dir)
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o750); err != nil {
		return fmt.Errorf("making %s: %w", parent, err)
	}
	if err := trust.Way(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	made, err := os.MkdirTemp(parent, "."+filepath.Base(dir)+"-")
	if err != nil {
		return fmt.Errorf("making %s: %w", dir, err)
	}
	if err = do(made); err == nil {
		err = unix.Rename(made, dir) // in the place of an empty directory, too, unlike os.Rename
	}
	if err != nil {
		_ = os.RemoveAll(made)
		return err
	}
	return syncDir(parent)
}

// memberHosts returns the addresses and names of the certificate of members.
func memberHosts(endpoints, hosts []string) ([]string, error) {
	all := []string{"localhost", "127.0.0.1", "::1"}
	for _, e := range endpoints {
		u, err := url.Parse(e)
		if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" || u.Path != "" {
			return nil, fmt.Errorf("endpoint %q: write it as https://ADDRESS:PORT", e)
		}
		all = append(all, u.Hostname())
	}
	for _, h := range hosts {
		if net.ParseIP(h) == nil && (h == "" || strings.ContainsAny(h, ":/[] ")) {
			return nil, fmt.Errorf("host %q: write the address or the name of a machine that etcd runs on", h)
		}
		all = append(all, h)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// writeTable writes the table [cluster] of the owner of a certificate, which is beside it.
func (a *Authority) writeTable(dir, file string, endpoints []string, node, comment string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n[cluster]\nname = %q\nendpoints = [", comment, a.Cluster)
	for i, e := range endpoints {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", e)
	}
	b.WriteString("]\n")
	if node != "" {
		fmt.Fprintf(&b, "node = %q\n", node)
	}
	fmt.Fprintf(&b, "\n[cluster.tls]\nca = %q\ncert = %q\nkey = %q\n", CAFile, file+certSuffix, file+keySuffix)
	return write(filepath.Join(dir, TableFile), []byte(b.String()), 0o644)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
