// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/host/tcplisten"
	"culvert/internal/lb/lbstage"
	"culvert/internal/route/routestage"
	"culvert/internal/scion"
	"culvert/internal/stage"
	"culvert/internal/stages"
)

// Checked is what a look at a configuration has found, without a start.
type Checked struct {
	// Wrong are errors of the files, and contradictions between stages, also to what was made by hand on the running data plane.
	Wrong []error
	// Refused are the errors with which this host would refuse a start.
	Refused []error
	// Notes do not keep a start from succeeding.
	Notes []error
	// Unchecked says what this process may not look at.
	Unchecked []error

	up
	// served is the process that serves the data plane already, 0 for none.
	served int
}

// Errors returns all that Run would refuse.
func (c *Checked) Errors() []error { return slices.Concat(c.Wrong, c.Refused) }

// Check looks for all errors that Run would return for the configuration at path, on this host and in this network namespace. It
// touches nothing.
func Check(path string) *Checked {
	c := &Checked{up: up{file: stage.File{Path: path}}}
	known := knownCluster(path)
	n, err := stages.LoadAll(path, known.remotes()...)
	c.wrong(err)
	c.note(known.note())
	if known != nil {
		c.refused(checkCertificate(known.table))
	}
	if n != nil {
		c.up = up{file: stage.File{Path: path, Node: n}, name: n.Name}
		c.look()
	}
	for _, list := range []*[]error{&c.Wrong, &c.Refused, &c.Notes, &c.Unchecked} {
		*list = config.Sorted(config.Errors(*list).Err())
	}
	c.Refused = withPositions(c.Refused)
	return c
}

// look makes the plans of all stages and checks them.
func (c *Checked) look() {
	for _, s := range stages.All() {
		p, err := s.Plan(c.file)
		c.wrong(err)
		if p != nil && err == nil {
			c.plans = append(c.plans, p)
		}
	}
	c.refused(c.place())
	running := c.running()
	if running != nil {
		defer running.Close()
	}
	c.note(idleWorkers(c.file.Node))
	c.refused(checkListeners(c.file.Node, c.served))
	c.wrong(c.checkPlans(running))
	c.refused(c.checkHost(true, c.served, c.note))
	if c.name == "" || len(c.on) == 0 {
		return // there are errors, or all underlay addresses are on loopback
	}
	c.refused(c.checkAttach(running, c.note))
}

// checkAttach returns the errors with which a data plane could not be attached in the place of the running one, nil if there is
// none, and notes the interfaces that it would wait for.
func (u *up) checkAttach(running *datapath.Instance, note func(error)) error {
	problems, missing := datapath.Check(u.options(true), running)
	var errs config.Errors
	for _, p := range problems {
		switch {
		case p.Mode:
			errs.Add(u.file.Node.Locate("mode", p.Err))
		case p.Interface == "" || config.Impossible(p.Interface) == "": // the file has the error of a name that no interface can have
			errs.Add(u.locate(p.Interface, p.Err))
		}
	}
	for _, name := range missing {
		if config.Impossible(name) != "" {
			continue
		}
		note(u.locate(name, missingNote(name)))
	}
	return errs.Err()
}

// missingNote says of an interface that it does not exist yet, or that its name looks like a mistake.
func missingNote(name string) error {
	const waits = "the data plane waits for one of exactly this name"
	switch below, _, veth := strings.Cut(name, "@"); {
	case strings.ContainsAny(name, "*?["):
		return fmt.Errorf("interface %s does not exist, and names are no patterns: name each interface, %s", name, waits)
	case veth && below != "":
		return fmt.Errorf("interface %s does not exist: 'ip link' shows what is below or behind an interface after the @, write %s: %s", name, below, waits)
	}
	return fmt.Errorf("interface %s does not exist yet: the data plane attaches to it when it does", name)
}

// running returns the data plane of that name in this network namespace, nil if there is none, and finds the process that serves it.
func (c *Checked) running() *datapath.Instance {
	if c.name == "" {
		return nil // the SCION router's own files have errors, and one of them has the name
	}
	running, err := datapath.OpenHere(c.name)
	c.refused(err)
	if running != nil {
		c.served = running.ServerPID()
	}
	if c.served == 0 && has(c.file.Node, scion.Stage{}) {
		c.served = scion.ServerPID(c.name)
	}
	if c.served != 0 {
		brings := "'culvert reload' brings the file into force there"
		if other := servedFile(c.served); other != "" && !sameFile(other, c.file.Path) {
			brings = "'culvert reload' has it read " + other
		}
		c.note(fmt.Errorf("data plane %s is served by process %d: %s, and 'culvert run' is refused until it ends", c.name, c.served, brings))
	}
	return running
}

func (c *Checked) wrong(err error)   { c.add(&c.Wrong, err) }
func (c *Checked) refused(err error) { c.add(&c.Refused, err) }

func (c *Checked) note(err error) {
	if err != nil {
		c.Notes = append(c.Notes, withPosition(err))
	}
}

// add adds errors to a list, or to Unchecked if they say that this process may not look. A configuration file that cannot be read
// is an error for every user, since it may have anything.
func (c *Checked) add(list *[]error, err error) {
	for _, one := range config.All(err) {
		one = withPosition(one)
		var unread *config.ReadError
		if os.Geteuid() != 0 && errors.Is(one, fs.ErrPermission) && !errors.As(one, &unread) {
			c.Unchecked = append(c.Unchecked, one)
			continue
		}
		*list = append(*list, one)
	}
}

// withPosition adds a position to the error of a stage's own file, which knows it.
func withPosition(err error) error {
	var own interface{ At() *config.Error }
	if errors.As(err, &own) {
		if at := own.At(); at != nil {
			return at
		}
	}
	return err
}

// withPositions removes the errors without a position that another error repeats with one.
func withPositions(all []error) []error {
	known := make(map[string]bool)
	for _, err := range all {
		var at *config.Error
		if errors.As(err, &at) {
			known[at.Err.Error()] = true
		}
	}
	return slices.DeleteFunc(all, func(err error) bool { return known[err.Error()] })
}

// idleWorkers says that [workers] has no effect, nil if it has.
func idleWorkers(n *config.Node) error {
	if n.Workers == nil {
		return nil
	}
	for _, s := range []stage.Stage{scion.Stage{}, routestage.Stage{}, lbstage.Stage{}} {
		if n.Mentions(s.Name()) { // with errors as well, which are said by themselves
			return nil
		}
	}
	return n.Locate("workers", errors.New("[workers] has no effect: there is none of [scion], [route] and [lb], whose packets are spread"))
}

// checkListeners returns the errors with which the node's metrics and its page could not be served. The process served may hold
// the addresses.
func checkListeners(n *config.Node, served int) error {
	var errs config.Errors
	if n.Metrics != "" {
		if err := tcplisten.Check(n.Metrics, served); err != nil {
			errs.Add(n.Locate("metrics", metricsError(n.Metrics, err)))
		}
	}
	// What is no address has been refused with the file.
	if at := n.WebAddress(); at != "" && config.ListenAddress(at) == nil {
		if err := tcplisten.Check(at, served); err != nil {
			errs.Add(n.In("web").Locate("listen", webError(at, err)))
		}
	}
	return errs.Err()
}

func metricsError(address string, err error) error {
	return fmt.Errorf("serving metrics on %s: %w", address, err)
}

func webError(address string, err error) error {
	return fmt.Errorf("serving the page on %s: %w", address, err)
}
