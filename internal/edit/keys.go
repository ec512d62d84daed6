// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/host/trust"
	"culvert/internal/scion/scionplane"
	"culvert/internal/show"
	"culvert/internal/show/planes"
	"culvert/internal/show/status"
)

// StandardInput is the file name that stands for standard input.
const StandardInput = "-"

// onSCION opens the data plane of a change of forwarding keys: that of a SCION router of any network namespace.
type onSCION struct{}

func (onSCION) open(on string) (*datapath.Instance, error) { return openSCION(on) }

// KeyAdd asks for a forwarding key to be loaded.
type KeyAdd struct {
	onSCION
	// Index is 0 or 1.
	Index int `json:"index"`
	// Key is the derived key, 16 bytes in base64.
	Key string `json:"key"`
}

// Check implements Request.
func (a *KeyAdd) Check() error {
	_, err := parseKey(a.Key)
	return errors.Join(checkIndex(a.Index), err)
}

func (a *KeyAdd) do(_ context.Context, inst *datapath.Instance, r *Result) error {
	key, err := parseKey(a.Key)
	if err != nil {
		return err
	}
	router := scionplane.Of(inst)
	if err := followsSchedule(router); err != nil {
		return err
	}
	if err := router.AddKey(a.Index, key); err != nil {
		return err
	}
	fmt.Fprintf(r, "key %d of router %s loaded\n", a.Index, router.Name())
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
	return parseKey(string(text))
}

// NewKey returns a request for a key at an index.
func NewKey(index int, key [scionplane.KeySize]byte) *KeyAdd {
	return &KeyAdd{Index: index, Key: base64.StdEncoding.EncodeToString(key[:])}
}

func parseKey(text string) (key [scionplane.KeySize]byte, err error) {
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
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
func openSCION(name string) (*datapath.Instance, error) {
	return planes.Open(name, planes.Kind{
		Name: "SCION router", Plural: "SCION routers", Is: scionplane.Routes, Anywhere: true, None: "see 'culvert status'",
	})
}

// KeyDel asks for a forwarding key to be deleted. A key of a schedule is never deleted.
type KeyDel struct {
	onSCION
	// Index is 0 or 1.
	Index int `json:"index"`
	// Force deletes the key even if valid packets will be dropped without it.
	Force bool `json:"force,omitempty"`
}

// Check implements Request.
func (d *KeyDel) Check() error { return checkIndex(d.Index) }

func (d *KeyDel) do(_ context.Context, inst *datapath.Instance, r *Result) error {
	router := scionplane.Of(inst)
	keys, err := router.Keys()
	if err != nil {
		return err
	}
	if err := keptBySchedule(router, keys, d.Index); err != nil {
		return err
	}
	own, _ := router.SlowPathKey()
	if !router.Served() {
		own = ""
	}
	loss := removalLoss(keys, d.Index, own)
	if loss != nil && !d.Force {
		return fmt.Errorf("key %d of router %s is %s: without it %s: --force removes it all the same",
			d.Index, router.Name(), loss.role, loss.follows)
	}
	if err := router.RemoveKey(d.Index); err != nil {
		return err
	}
	fmt.Fprintf(r, "key %d of router %s removed\n", d.Index, router.Name())
	if loss != nil {
		fmt.Fprintln(r, loss.follows)
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
	inst, err := openSCION(on)
	if err != nil {
		return err
	}
	defer inst.Close()
	router := scionplane.Of(inst)
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

// KeyIndex reads the index of a key.
func KeyIndex(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n >= scionplane.MaxKeys {
		return 0, fmt.Errorf("key index %q: use 0 or %d", s, scionplane.MaxKeys-1)
	}
	return n, nil
}

func checkIndex(n int) error {
	_, err := KeyIndex(strconv.Itoa(n))
	return err
}
