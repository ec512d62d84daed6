// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"culvert/internal/host/trust"
)

const (
	// stateDir is where a machine keeps what it has made up, unless systemd's StateDirectory= names another place.
	stateDir = "/var/lib/culvert"
	seedName = "lb-seed"
	// seedBytes are more than the rings' hash can use (6 words).
	seedBytes = 32
	// publicSeed was every machine's once: whoever has read this can compute which flows meet on a backend.
	publicSeed = "culvert"
)

func seedPath() string {
	dir := stateDir
	if dirs := os.Getenv("STATE_DIRECTORY"); dirs != "" {
		dir, _, _ = strings.Cut(dirs, ":")
	}
	return filepath.Join(dir, seedName)
}

// MachineSeed returns the seed of this machine's load balancers and where it is kept. One is made if there is none.
func MachineSeed() (seed, path string, made bool, err error) {
	path = seedPath()
	text, err := trust.Secret(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeSeed(path); err == nil {
			made = true
			text, err = trust.Secret(path)
		}
	}
	if err != nil {
		return "", path, false, fmt.Errorf("the seed of the load balancer's rings: %w (or set seed in [lb])", err)
	}
	if seed = strings.TrimSpace(string(text)); seed == "" {
		return "", path, false, fmt.Errorf("the seed of the load balancer's rings: %s is empty: remove it, and another is made", path)
	}
	return seed, path, made, nil
}

// makeSeed writes a new seed. Of two processes at once the first one's stays.
func makeSeed(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := trust.Dir(dir); err != nil {
		return err
	}
	var b [seedBytes]byte
	_, _ = rand.Read(b[:]) // it never fails (crypto/rand)
	f, err := os.CreateTemp(dir, seedName+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(base64.StdEncoding.EncodeToString(b[:]) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// ShowSeed writes this machine's seed to out, for the other machines of its VIPs.
func ShowSeed(out, errs io.Writer) error {
	seed, path, made, err := MachineSeed()
	if err != nil {
		return err
	}
	if made {
		fmt.Fprintf(errs, "made %s\n", path)
	}
	_, err = fmt.Fprintln(out, seed)
	return err
}

// seed fills in the key of the rings: from the file's text, or this machine's own.
func (p *Plan) seed(log *slog.Logger) error {
	if p.file == nil {
		return nil // what runs has one
	}
	text := p.file.Seed
	switch {
	case text == publicSeed:
		log.Warn("the seed of the load balancer's rings is one that everybody knows: anybody can choose flows that meet on one backend. " +
			"Take it out of [lb], and see 'culvert lb seed'")
	case text == "":
		var (
			path string
			made bool
			err  error
		)
		if text, path, made, err = MachineSeed(); err != nil {
			return err
		}
		if made {
			log.Warn("made a seed for the load balancer's rings: other machines with these VIPs need the same, or flows that move between "+
				"them break: see 'culvert lb seed'", "file", path)
		}
	}
	p.options.Seed = seedWords(text)
	return nil
}

// seedWords makes the key of rings from the seed's text: the same on all machines.
func seedWords(text string) (words [6]uint32) {
	sum := sha256.Sum256([]byte(text))
	for n := range words {
		words[n] = binary.BigEndian.Uint32(sum[4*n:])
	}
	return words
}
