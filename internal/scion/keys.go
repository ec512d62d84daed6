// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/scionproto/scion/private/keyconf"
	"github.com/scionproto/scion/router/control"
)

// masterKeySize is the length in bytes of an AS master key, as scion-pki and the topology
// generator write it.
const masterKeySize = 16

// loadKeys reads the AS master keys and derives the forwarding key from the first. With need set a missing file is an
// error. The reference wants both files.
func (r *Router) loadKeys(need bool) error {
	dir := filepath.Join(r.Config.General.ConfigDir, "keys")
	key0, err := readKey(filepath.Join(dir, keyconf.MasterKey0), r.Path, need)
	if err != nil {
		return err
	}
	key1, err := readKey(filepath.Join(dir, keyconf.MasterKey1), r.Path, need)
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
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !need {
		return nil, nil
	}
	if err != nil {
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
