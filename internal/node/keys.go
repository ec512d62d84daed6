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
	"time"

	"culvert/internal/host/trust"
	"culvert/internal/scion/scionplane"
	"culvert/internal/show"
	"culvert/internal/show/planes"
	"culvert/internal/show/status"
)

// StandardInput is the file name that stands for standard input.
const StandardInput = "-"

// AddKey loads a forwarding key, 16 bytes in base64, into a router's data plane and writes to out what it has done. on names
// the router, "" is the only one. The key is read from the file from, or from in if from is StandardInput.
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
	if err := followsSchedule(router); err != nil {
		return err
	}
	if err := router.AddKey(n, key); err != nil {
		return err
	}
	fmt.Fprintf(out, "key %d of router %s loaded\n", n, router.Name())
	return nil
}

// followsSchedule returns an error if the keys of a router follow a schedule, where others would be in the way.
func followsSchedule(router scionplane.Plane) error {
	schedule, err := router.Schedule()
	if err != nil || len(schedule) == 0 {
		return err
	}
	return fmt.Errorf("the keys of router %s follow the schedule in its file: change [[scion.key]] there, and reload or restart", router.Name())
}

// keptBySchedule returns an error if the key at an index is one of a schedule. The slow path would go on accepting it, and the next
// start would load it again.
func keptBySchedule(router scionplane.Plane, keys []scionplane.KeyInfo, index int) error {
	schedule, err := router.Schedule()
	if err != nil {
		return err
	}
	how := "reload or restart"
	if !router.Served() {
		how = "attach again or start the process"
	}
	for _, k := range keys {
		if k.Index == index && slices.ContainsFunc(schedule, func(s scionplane.ScheduledKey) bool { return s.ID == k.ID }) {
			return fmt.Errorf("the keys of router %s follow the schedule in its file: take key %s out of [[scion.key]] there, and %s",
				router.Name(), k.ID, how)
		}
	}
	return nil
}

// ReadKey reads a derived forwarding key, 16 bytes in base64, from the file from, or from in if from is StandardInput. It
// returns an error if others than root may read the file.
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
	const limit = 4096
	return io.ReadAll(io.LimitReader(in, limit))
}

func looksLikeKey(text string) bool {
	b, err := base64.StdEncoding.DecodeString(text)
	return err == nil && len(b) == scionplane.KeySize
}

// openSCION opens the SCION router name of any network namespace, or the only one on this machine if name is "".
func openSCION(name string) (scionplane.Plane, error) {
	inst, err := planes.Open(name, planes.Kind{
		Name: "SCION router", Plural: "SCION routers", Is: isSCION, Anywhere: true, None: "see 'culvert status'",
	})
	return scionplane.Of(inst), err
}

// RemoveKey removes a forwarding key from a router's data plane and writes to out what it has done. Without force it returns
// an error if valid packets would be dropped without the key. A key of a schedule is never removed.
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
	if err := keptBySchedule(router, keys, n); err != nil {
		return err
	}
	own, _ := router.SlowPathKey()
	if !router.Served() {
		own = ""
	}
	loss := removalLoss(keys, n, own)
	if loss != nil && !force {
		return fmt.Errorf("key %d of router %s is %s: without it %s: --force removes it all the same",
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

// loss is what removing a key costs: role says what the key is to the router, follows what becomes of packets.
type loss struct{ role, follows string }

// removalLoss returns what removing the key at an index costs, nil if nothing. own is the ID of the key that the serving
// process has, "" without a process.
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

// ListKeys writes the index and ID of each key that a router has loaded. It does not write the keys themselves.
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
	now := time.Now()
	schedule, err := status.Schedule(router, now)
	if err != nil {
		return err
	}
	if schedule != nil {
		fmt.Fprintln(out, strings.Join(schedule.Text(now), "\n"))
		return nil
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
