// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"culvert/internal/datapath"
)

// AddKey loads a forwarding key, 16 bytes in base64, into a router's data plane.
func AddKey(router, index, key string) error {
	n, err := keyIndex(index)
	if err != nil {
		return err
	}
	b, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		return fmt.Errorf("key is not base64: %w", err)
	}
	if len(b) != datapath.KeySize {
		return fmt.Errorf("key has %d bytes: a derived forwarding key has %d "+
			"(master keys belong in the router's keys/ directory)", len(b), datapath.KeySize)
	}
	inst, err := datapath.Open(router)
	if err != nil {
		return err
	}
	defer inst.Close()
	return inst.AddKey(n, [datapath.KeySize]byte(b))
}

// RemoveKey takes a forwarding key out of a router's data plane.
func RemoveKey(router, index string) error {
	n, err := keyIndex(index)
	if err != nil {
		return err
	}
	inst, err := datapath.Open(router)
	if err != nil {
		return err
	}
	defer inst.Close()
	return inst.RemoveKey(n)
}

// ListKeys writes which keys a router has loaded. The keys themselves are not shown.
func ListKeys(router string, asJSON bool, out io.Writer) error {
	inst, err := datapath.Open(router)
	if err != nil {
		return err
	}
	defer inst.Close()
	keys, err := inst.Keys()
	if err != nil {
		return err
	}
	if asJSON {
		if keys == nil {
			keys = []datapath.KeyInfo{}
		}
		return json.NewEncoder(out).Encode(keys)
	}
	for _, k := range keys {
		fmt.Fprintf(out, "%d  id %s\n", k.Index, k.ID)
	}
	if len(keys) == 0 {
		fmt.Fprintf(out, "%s has no key: culvert key add %s 0 BASE64\n", router, router)
	}
	return nil
}

func keyIndex(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n >= datapath.MaxKeys {
		return 0, fmt.Errorf("key index %q: use 0 to %d", s, datapath.MaxKeys-1)
	}
	return n, nil
}
