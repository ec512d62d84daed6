// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"culvert/internal/host/trust"
	"culvert/internal/scion/scionplane"
	"culvert/internal/show"
	"culvert/internal/show/planes"
)

// StandardInput is the name by which commands read it.
const StandardInput = "-"

// AddKey loads a forwarding key, 16 bytes in base64, into a router's data plane, and tells out. on names the
// router, "" the only one. The key is what the file from has, or in if from is StandardInput.
func AddKey(on, index, from string, in io.Reader, out io.Writer) error {
	n, err := keyIndex(index)
	if err != nil {
		return err
	}
	key, err := ReadKey(from, in)
	if err != nil {
		return err
	}
	router, err := openSCION(on)
	if err != nil {
		return err
	}
	defer router.Close()
	if err := router.AddKey(n, key); err != nil {
		return err
	}
	fmt.Fprintf(out, "key %d of router %s loaded\n", n, router.Name())
	return nil
}

// ReadKey reads a derived forwarding key, 16 bytes in base64, from a file that only root may read, or from in.
func ReadKey(from string, in io.Reader) (key [scionplane.KeySize]byte, err error) {
	text, err := readSecret(from, in)
	if errors.Is(err, fs.ErrNotExist) && looksLikeKey(from) {
		return key, errors.New("a key is not taken from the command line, where everybody sees it: " +
			"give the name of a file that has it, or nothing for standard input")
	}
	if err != nil {
		return key, fmt.Errorf("reading the key: %w", err)
	}
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	switch {
	case err != nil:
		return key, fmt.Errorf("key is not base64: %w", err)
	case len(b) != scionplane.KeySize:
		return key, fmt.Errorf("key has %d bytes: a derived forwarding key has %d "+
			"(master keys belong in the router's keys/ directory)", len(b), scionplane.KeySize)
	}
	return [scionplane.KeySize]byte(b), nil
}

func readSecret(from string, in io.Reader) ([]byte, error) {
	if from != StandardInput {
		return trust.Secret(from)
	}
	const most = 4096
	return io.ReadAll(io.LimitReader(in, most))
}

func looksLikeKey(text string) bool {
	b, err := base64.StdEncoding.DecodeString(text)
	return err == nil && len(b) == scionplane.KeySize
}

// openSCION opens the SCION router of a name, "" for the only one on this machine.
func openSCION(name string) (scionplane.Plane, error) {
	inst, err := planes.Open(name, planes.Kind{
		Name: "SCION router", Plural: "SCION routers", Is: isSCION, Anywhere: true, None: "see 'culvert status'",
	})
	return scionplane.Of(inst), err
}

// RemoveKey takes a forwarding key out of a router's data plane, and tells out. Without force it
// refuses when valid packets would be dropped for it.
func RemoveKey(on, index string, force bool, out io.Writer) error {
	n, err := keyIndex(index)
	if err != nil {
		return err
	}
	router, err := openSCION(on)
	if err != nil {
		return err
	}
	defer router.Close()
	keys, err := router.Keys()
	if err != nil {
		return err
	}
	own, _ := router.SlowPathKey()
	if !router.Served() {
		own = ""
	}
	loss := removalLoss(keys, n, own)
	if loss != nil && !force {
		return fmt.Errorf("key %d of router %s is %s: without it %s: say --force to remove it all the same",
			n, router.Name(), loss.role, loss.follows)
	}
	if err := router.RemoveKey(n); err != nil {
		return err
	}
	fmt.Fprintf(out, "key %d of router %s removed\n", n, router.Name())
	if loss != nil {
		fmt.Fprintln(out, loss.follows)
	}
	return nil
}

// loss is what a router loses with a key: what the key is to it, and what becomes of packets.
type loss struct{ role, follows string }

// removalLoss says what is lost with the key at an index, nil for nothing that anybody would miss.
// own is the ID of the key that the serving process has, "" without a process.
func removalLoss(keys []scionplane.KeyInfo, index int, own string) *loss {
	at := slices.IndexFunc(keys, func(k scionplane.KeyInfo) bool { return k.Index == index })
	switch {
	case at < 0:
		return nil
	case len(keys) == 1 && own == "":
		return &loss{"the only one", "no packet is forwarded until a key is added"}
	case len(keys) == 1:
		return &loss{"the only one", "packets under any key are dropped until a key is added"}
	case keys[at].ID == own:
		return &loss{"the one that the serving process has", "packets under it, and all of path type EPIC, " +
			"are dropped until it is added again or the process has started with another key"}
	default:
		return nil
	}
}

// ListKeys writes which keys a router has loaded. The keys themselves are not shown.
func ListKeys(on string, asJSON bool, out io.Writer) error {
	router, err := openSCION(on)
	if err != nil {
		return err
	}
	defer router.Close()
	keys, err := router.Keys()
	if err != nil {
		return err
	}
	if asJSON {
		if keys == nil {
			keys = []scionplane.KeyInfo{}
		}
		return show.JSON(out, keys)
	}
	for _, k := range keys {
		fmt.Fprintf(out, "%d  id %s\n", k.Index, k.ID)
	}
	if len(keys) == 0 {
		fmt.Fprintf(out, "%s has no key: culvert key add 0 FILE --on %s\n", router.Name(), router.Name())
	}
	return nil
}

func keyIndex(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n >= scionplane.MaxKeys {
		return 0, fmt.Errorf("key index %q: use 0 or %d", s, scionplane.MaxKeys-1)
	}
	return n, nil
}
