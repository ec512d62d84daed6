// SPDX-License-Identifier: Apache-2.0

// Package access says who may do what in a cluster: certificates of its own authority, and etcd's users and roles behind them. etcd
// takes the common name of a client's certificate for its user (Document "Role-based access control" of etcd).
package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"culvert/internal/cluster"
	"culvert/internal/host/trust"
)

// How long certificates are valid. doctor warns in time.
const (
	authorityYears = 10
	ownYears       = 2
)

// Names of files.
const (
	CAFile     = "ca.pem"
	caKeyFile  = "ca-key.pem"
	nameFile   = "cluster"
	certSuffix = ".pem"
	keySuffix  = "-key.pem"
)

// Authority is the directory of a cluster's own authority.
type Authority struct {
	// Dir has all of its files. Only root may read the keys.
	Dir string
	// Cluster is the name of the cluster.
	Cluster string

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Files are those of a certificate.
type Files struct{ CA, Cert, Key string }

// FilesIn returns the files of the certificate of a name in a directory.
func FilesIn(dir, name string) Files {
	return Files{filepath.Join(dir, CAFile), filepath.Join(dir, name+certSuffix), filepath.Join(dir, name+keySuffix)}
}

// Init makes the authority of a new cluster in dir. It refuses a directory that has one.
func Init(dir, name string) (*Authority, error) {
	if err := cluster.CheckName(name); err != nil {
		return nil, fmt.Errorf("the cluster's name: %w", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, caKeyFile)); err == nil {
		return nil, fmt.Errorf("%s has the authority of a cluster already: choose another directory with --dir, or remove it if nothing uses it", dir)
	}
	if err := trust.MakeDir(dir); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &Authority{Dir: dir, Cluster: name, key: key}
	of := template("culvert cluster "+name, authorityYears)
	of.IsCA, of.BasicConstraintsValid, of.MaxPathLenZero = true, true, true
	of.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	// The key comes last: it makes the directory one of an authority.
	if err := write(filepath.Join(dir, nameFile), []byte(name+"\n"), 0o644); err != nil {
		return nil, err
	}
	if err := writePEM(filepath.Join(dir, CAFile), "CERTIFICATE", der, 0o644); err != nil {
		return nil, err
	}
	return a, writeKey(filepath.Join(dir, caKeyFile), key)
}

// Open reads the authority in dir.
func Open(dir string) (*Authority, error) {
	name, err := ClusterOf(dir)
	if err != nil {
		return nil, err
	}
	a := &Authority{Dir: dir, Cluster: name}
	if _, err := os.Lstat(filepath.Join(dir, caKeyFile)); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no %s: the directory that 'culvert cluster init' made has it", dir, caKeyFile)
	}
	pair, err := Load(Files{Cert: filepath.Join(dir, CAFile), Key: filepath.Join(dir, caKeyFile)})
	if err != nil {
		return nil, err
	}
	key, is := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !is {
		return nil, fmt.Errorf("%s is no ECDSA key: it is not of 'culvert cluster init'", filepath.Join(dir, caKeyFile))
	}
	a.cert, a.key = pair.Leaf, key
	return a, nil
}

// ClusterOf returns the name of the cluster whose files are in dir.
func ClusterOf(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, nameFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s has no files of a cluster: name their directory with --dir, or make them with 'culvert cluster init NAME'", dir)
	}
	if err != nil {
		return "", err
	}
	name := strings.TrimSpace(string(text))
	if err := cluster.CheckName(name); err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Join(dir, nameFile), err)
	}
	return name, nil
}

// Issue makes a certificate for user, with its key, in dir, beside the authority's own. hosts are the addresses and names that a server
// answers under; a certificate without them is for clients alone. A certificate of the same user that is there is replaced.
func (a *Authority) Issue(dir, file, user string, hosts []string) (Files, error) {
	files := FilesIn(dir, file)
	if err := trust.MakeDir(dir); err != nil {
		return files, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return files, err
	}
	of := template(user, ownYears)
	if of.NotAfter.After(a.cert.NotAfter) {
		of.NotAfter = a.cert.NotAfter
	}
	of.KeyUsage = x509.KeyUsageDigitalSignature
	of.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for _, h := range hosts {
		of.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		if ip := net.ParseIP(h); ip != nil {
			of.IPAddresses = append(of.IPAddresses, ip)
		} else {
			of.DNSNames = append(of.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, of, a.cert, key.Public(), a.key)
	if err != nil {
		return files, err
	}
	if dir != a.Dir {
		if err := writePEM(files.CA, "CERTIFICATE", a.cert.Raw, 0o644); err != nil {
			return files, err
		}
	}
	if err := writeKey(files.Key, key); err != nil {
		return files, err
	}
	return files, writePEM(files.Cert, "CERTIFICATE", der, 0o644)
}

// template is what all certificates have.
func template(user string, years int) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // crypto/rand does not fail
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: user},
		NotBefore: now.Add(-time.Hour), // for clocks that are behind
		NotAfter:  now.AddDate(years, 0, 0),
	}
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "PRIVATE KEY", der, 0o600)
}

func writePEM(path, kind string, der []byte, mode fs.FileMode) error {
	return write(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}

// write replaces a file as a whole.
func write(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
