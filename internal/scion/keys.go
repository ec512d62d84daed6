// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/scionproto/scion/private/keyconf"
	"github.com/scionproto/scion/router/control"

	"culvert/internal/host/trust"
)

// keyPaths returns the paths of the AS master keys. The reference wants both.
func (r *Router) keyPaths() (key0, key1 string) {
	dir := filepath.Join(r.Config.General.ConfigDir, "keys")
	return filepath.Join(dir, keyconf.MasterKey0), filepath.Join(dir, keyconf.MasterKey1)
}

// masterKeySize is the length in bytes of an AS master key, as scion-pki and the topology
// generator write it.
const masterKeySize = 16

// loadKeys reads the AS master keys and derives the forwarding key from the first. With need set a missing file is an
// error.
func (r *Router) loadKeys(need bool) error {
	path0, path1 := r.keyPaths()
	key0, err := readKey(path0, r.Path, need)
	if err != nil {
		return err
	}
	key1, err := readKey(path1, r.Path, need)
	if err != nil {
		return err
	}
	r.Control.MasterKeys = keyconf.Master{Key0: key0, Key1: key1}
	if key0 != nil {
		r.Key = new([16]byte)
		copy(r.Key[:], control.DeriveHFMacKey(key0))
	}
	return nil
}

// readKey decodes the key file at path, below general.config_dir of the file toml. A missing file is an error if need is
// set; otherwise the key is nil.
func readKey(path, toml string, need bool) ([]byte, error) {
	raw, err := trust.Secret(path)
	var open *trust.Error
	switch {
	case errors.Is(err, fs.ErrNotExist) && !need:
		return nil, nil
	case errors.As(err, &open):
		return nil, badField(path)("master key", "%w", err)
	case err != nil:
		return nil, missing(path, toml, "the AS's master key", err)
	}
	key := make([]byte, base64.StdEncoding.DecodedLen(len(raw)))
	n, err := base64.StdEncoding.Decode(key, raw)
	if err != nil {
		return nil, badField(path)("master key", "%v: write %d bytes in standard base64", err, masterKeySize)
	}
	if n != masterKeySize {
		return nil, badField(path)("master key", "%d bytes long: write %d bytes in standard base64",
			n, masterKeySize)
	}
	return key[:n], nil
}
