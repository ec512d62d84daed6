// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"crypto/tls"
	"fmt"
	"io"
	"os"

	"culvert/internal/cluster/etcd"
	"culvert/internal/config"
	"culvert/internal/filter/filterstage"
)

// Open returns the cluster that the table [cluster] of a configuration file names. It connects with the first call. user says who the operator is.
func Open(file, user string) (*Fleet, error) {
	c, err := config.ReadCluster(file)
	switch {
	case err != nil:
		return nil, err
	case c == nil:
		return nil, fmt.Errorf("%s has no [cluster]: it says where etcd is, and which certificate to use; see 'culvert fleet --help'", file)
	}
	client, err := etcd.Connect(c)
	if err != nil {
		return nil, err
	}
	f := New(client, c.Name, by(user, c.TLS))
	f.probe = etcd.ProbeOf(c)
	return f, nil
}

// by adds the common name of the operator's certificate.
func by(user string, files *config.ClusterTLS) string {
	if files == nil {
		return user
	}
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil || pair.Leaf == nil {
		return user // connecting says what is wrong
	}
	return user + " " + pair.Leaf.Subject.CommonName
}

// Read reads the file of a change, standard input for "-".
func (c *Change) Read(stdin io.Reader) error {
	if c.File == os.DevNull {
		return nil
	}
	name, text, err := filterstage.ReadFile(c.File, stdin)
	c.File, c.Text = name, string(text)
	return err
}
