// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/decap/decapplane"
	"culvert/internal/host/runstate"
)

// Detach takes culvert off interfaces of this network namespace, the end of the load balancer's tunnels
// too; nothing is touched if one of them does not carry it.
func Detach(interfaces []string, out io.Writer) error {
	all, err := datapath.ListHere()
	if err != nil {
		return err
	}
	defer closeAll(all)
	ends, err := decapplane.List()
	if err != nil {
		return err
	}
	isEnd := func(name string) bool {
		return slices.ContainsFunc(ends, func(d decapplane.End) bool { return d.Interface == name })
	}
	owners := make(map[string]*datapath.Instance)
	for _, name := range interfaces {
		i := slices.IndexFunc(all, func(i *datapath.Instance) bool {
			return slices.Contains(i.Attached(), name)
		})
		if i < 0 && isEnd(name) { // perhaps one that was deleted
			continue
		}
		if i < 0 {
			return fmt.Errorf("culvert is not attached to %s here: see 'culvert status'", name)
		}
		owners[name] = all[i]
	}
	served := make(map[*datapath.Instance]servedBy)
	for _, i := range owners {
		served[i] = whoServes(i) // the last interface takes with it what tells
	}
	for _, name := range interfaces {
		if i := owners[name]; i != nil {
			err = i.Detach(name)
		} else {
			_, err = decapplane.Detach(name)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "detached from %s\n", name)
	}
	for _, i := range all {
		if s := served[i]; s.served {
			s.tell(i, i.Attached(), out)
		}
	}
	return runstate.Sweep()
}

// servedBy is what is known of the process of an instance that is about to be detached.
type servedBy struct {
	served bool
	// does is what it does then, in the words of the configuration file; "" if it does not tell.
	does string
}

// whoServes waits for the word of a process that has attached just now, and gives it some time after its lock.
func whoServes(i *datapath.Instance) servedBy {
	s := servedBy{served: i.Served()}
	for range toldTries {
		p, known, err := i.Process()
		s.does = p.Detached
		if !s.served || known || err != nil {
			break
		}
		time.Sleep(toldPause)
	}
	return s
}

const (
	toldTries = 40
	toldPause = 50 * time.Millisecond
)

// tell says what the process does without interfaces it had; left are those that are still attached.
func (s servedBy) tell(i *datapath.Instance, left []string, out io.Writer) {
	fmt.Fprintf(out, "router %s is still served by a process, which %s\n", i.Name(), s.goesOn(isSCION(i), left))
}

func (s servedBy) goesOn(scion bool, left []string) string {
	said := ""
	if s.does != "" {
		said = fmt.Sprintf(" (detached = %q)", s.does)
	}
	except := ""
	if len(left) > 0 {
		except = " except on " + strings.Join(left, ", ")
	}
	switch {
	case s.does == config.DetachedAttach:
		return "attaches again at once" + said + ": to have it stay off, stop the process first"
	case s.does == config.DetachedExit && except == "":
		return "ends now" + said
	case scion && except == "":
		return "goes on with its slow path alone" + said
	case scion:
		return "goes on with its slow path alone" + except
	case except != "":
		return "has nothing to do" + except
	}
	return "ends or attaches again, as its configuration says"
}

// DetachAll takes culvert off every interface of this network namespace, and removes what is left
// of instances and ends of tunnels, of whatever namespace, that are attached to nothing any more and
// not served.
func DetachAll(out io.Writer) error {
	all, err := datapath.List()
	if err != nil {
		return err
	}
	defer closeAll(all)
	told := &notedWriter{Writer: out}
	var errs []error
	for _, i := range all {
		errs = append(errs, detachOrForget(i, told))
	}
	err = errors.Join(append(errs, detachEnds(told), decapplane.Forget(), runstate.Sweep())...)
	if err == nil && !told.any {
		fmt.Fprintln(out, "nothing of culvert is attached in this network namespace")
	}
	return err
}

// detachEnds takes the ends of the load balancer's tunnels off.
func detachEnds(out io.Writer) error {
	ends, err := decapplane.List()
	if err != nil {
		return err
	}
	for _, d := range ends {
		if _, err := decapplane.Detach(d.Interface); err != nil {
			return err
		}
		fmt.Fprintf(out, "the end of tunnels on %s detached\n", d.Interface)
	}
	return nil
}

func detachOrForget(i *datapath.Instance, out io.Writer) error {
	gone, err := i.Forget()
	if err != nil {
		return err
	}
	if gone {
		fmt.Fprintf(out, "router %s of network namespace %d removed: its interfaces were gone\n", i.Name(), i.NetNS())
		return nil
	}
	if !i.Here() {
		return nil
	}
	s := whoServes(i)
	if err := i.DetachAll(); err != nil {
		return err
	}
	fmt.Fprintf(out, "router %s detached\n", i.Name())
	if s.served {
		s.tell(i, nil, out)
	}
	return nil
}

func closeAll(all []*datapath.Instance) {
	for _, i := range all {
		i.Close()
	}
}

// notedWriter remembers whether anything was written.
type notedWriter struct {
	io.Writer
	any bool
}

// Write implements io.Writer.
func (w *notedWriter) Write(p []byte) (int, error) {
	w.any = true
	return w.Writer.Write(p)
}
