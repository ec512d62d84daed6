// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"culvert/internal/datapath"
	"culvert/internal/lb/lbplane"
)

// usedSeed is the name of a running load balancer and the ID of its seed.
type usedSeed struct {
	router, id string
}

// ShowSeed writes this machine's seed to out, for the other machines with its VIPs. It creates a seed if there is none and no
// load balancer runs. It returns an error if only load balancers with other seeds run here, since no other machine needs the
// file's seed then.
func ShowSeed(out, errs io.Writer) error {
	seed, path, err := readSeed()
	if err != nil {
		return err
	}
	running, err := usedSeeds()
	if err != nil {
		return err
	}
	if seed == "" {
		if len(running) > 0 {
			return fmt.Errorf("%s uses a seed of its own (ID %s), and there is no %s: see seed in [lb] of its configuration",
				running[0].router, running[0].id, path)
		}
		if seed, err = makeSeed(path, errs); err != nil {
			return err
		}
	}
	id := seedID(seed)
	var others []error
	for _, r := range running {
		if r.id != id {
			others = append(others, fmt.Errorf("%s uses another seed (ID %s) than that of %s (ID %s): see seed in [lb] of its "+
				"configuration; without one there, the next start uses the file's", r.router, r.id, path, id))
		}
	}
	if len(others) > 0 && len(others) == len(running) {
		return others[0]
	}
	for _, other := range others {
		fmt.Fprintln(errs, other)
	}
	_, err = fmt.Fprintln(out, seed)
	return err
}

// makeSeed writes a new seed and returns it. If another process has written one meanwhile, makeSeed returns that.
func makeSeed(path string, errs io.Writer) (string, error) {
	err := writeSeed(path, newSeed())
	switch {
	case err == nil:
		fmt.Fprintf(errs, "made %s\n", path)
	case !errors.Is(err, fs.ErrExist):
		return "", fmt.Errorf("making a seed for the load balancer's rings: %w", err)
	}
	seed, _, err := readSeed()
	return seed, err
}

// usedSeeds returns the IDs of the seeds of all running load balancers of this network namespace.
func usedSeeds() (used []usedSeed, err error) {
	all, err := datapath.ListHere()
	if err != nil {
		return nil, err
	}
	for _, inst := range all {
		if o := lbplane.OptionsOf(inst); o != nil {
			used = append(used, usedSeed{inst.Name(), o.SeedID()})
		}
		inst.Close()
	}
	return used, nil
}

// seedID returns the ID that 'culvert lb show' shows for a seed.
func seedID(text string) string { return lbplane.Options{Seed: seedWords(text)}.SeedID() }
