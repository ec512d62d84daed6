// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"culvert/internal/host/trust"
)

const (
	// stateDir has the files that culvert generates on a machine, unless systemd's StateDirectory= names another directory.
	stateDir = "/var/lib/culvert"
	seedName = "lb-seed"
	// seedBytes is the length of new seeds, which have more bits than the key of the rings' hash (6 words).
	seedBytes = 32
	// publicSeed was once the default. Anybody can compute which flows have the same backend with it.
	publicSeed = "culvert"
)

// SeedPath returns the path of the file with this machine's seed.
func SeedPath() string {
	dir := stateDir
	if dirs := os.Getenv("STATE_DIRECTORY"); dirs != "" {
		dir, _, _ = strings.Cut(dirs, ":")
	}
	return filepath.Join(dir, seedName)
}

// readSeed returns the seed of this machine's load balancers and the path of its file. The seed is "" if there is no file.
func readSeed() (seed, path string, err error) {
	path = SeedPath()
	text, err := trust.Secret(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", path, nil
	case err != nil:
		return "", path, seedError(err)
	}
	if seed = strings.TrimSpace(string(text)); seed == "" {
		return "", path, fmt.Errorf("the seed of the load balancer's rings: %s is empty: remove it, and another is made", path)
	}
	return seed, path, nil
}

// newSeed returns a random seed.
func newSeed() string {
	var b [seedBytes]byte
	_, _ = rand.Read(b[:]) // it never fails (crypto/rand)
	return base64.StdEncoding.EncodeToString(b[:])
}

// writeSeed creates the file with this machine's seed. It returns fs.ErrExist if the file exists.
func writeSeed(path, seed string) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := trust.Dir(dir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, seedName+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(seed + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}

// seed sets the key of the rings, from the seed in the file or this machine's seed. If there is none, made is the seed that former
// uses, or without that a new one, to be written once the plan is in force. Otherwise made is "". former is the plan that this
// process serves, nil for none.
func (p *Plan) seed(log *slog.Logger, former *Plan) (made string, err error) {
	if p.file == nil {
		return "", nil // keep uses the seed of the running load balancer
	}
	text, err := p.seedText()
	switch {
	case err != nil:
		return "", err
	case text == publicSeed:
		log.Warn("the seed of the load balancer's rings is one that everybody knows: anybody can choose flows that meet on one backend. " +
			"Take it out of [lb], and see 'culvert lb seed'")
	case text == "":
		if made = former.machineSeed(); made == "" {
			made = newSeed()
		}
		text = made
	}
	if p.file.Seed == "" {
		p.ownSeed = text
	}
	p.options.Seed = seedWords(text)
	return made, nil
}

// machineSeed returns this machine's seed if the plan was started with it, "" otherwise. The file of the seed may be gone since.
func (p *Plan) machineSeed() string {
	if p == nil {
		return ""
	}
	return p.ownSeed
}

// seedText returns the seed in the file or this machine's seed, "" if that has to be made. Then the error is that of its directory.
func (p *Plan) seedText() (text string, err error) {
	if p.file.Seed != "" {
		return p.file.Seed, nil
	}
	text, path, err := readSeed()
	if err == nil && text == "" {
		if err = trust.Dir(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
			err = nil // it is made
		}
		if err != nil {
			err = seedError(err)
		}
	}
	return text, err
}

// seedError says in front of an error what it is about, and behind it how to do without.
func seedError(err error) error {
	return fmt.Errorf("the seed of the load balancer's rings: %w (or set seed in [lb])", err)
}

// keepSeed writes a seed that Plan.seed has made, at a time when the start cannot be refused any more. It does nothing for "".
func keepSeed(made string, former *Plan, log *slog.Logger) error {
	if made == "" {
		return nil
	}
	path := SeedPath()
	err := writeSeed(path, made)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("the seed of the load balancer's rings: another process has just made %s: start again, to use that one", path)
	case err != nil:
		return seedError(err)
	}
	if made == former.machineSeed() {
		log.Warn("the file with the seed of the load balancer's rings was gone: the seed in use stays, and was written again", "file", path)
		return nil
	}
	log.Warn("made a seed for the load balancer's rings: other machines with these VIPs need the same, or flows that move between "+
		"them break: see 'culvert lb seed'", "file", path)
	return nil
}

// seedWords returns the key of the rings for the text of a seed. It is the same on all machines.
func seedWords(text string) (words [6]uint32) {
	sum := sha256.Sum256([]byte(text))
	for n := range words {
		words[n] = binary.BigEndian.Uint32(sum[4*n:])
	}
	return words
}
