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
	"culvert/internal/scion/scionplane"
)

// Detach detaches culvert from interfaces of this network namespace, which may be ends of the load balancer's tunnels, and
// writes to out what it has done. It returns an error and changes nothing if one of the interfaces does not carry culvert.
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
	planes := make(map[string]*datapath.Instance)
	for _, name := range interfaces {
		i := slices.IndexFunc(all, func(i *datapath.Instance) bool {
			return slices.Contains(i.Attached(), name)
		})
		if i < 0 && isEnd(name) { // even if the interface was deleted
			continue
		}
		if i < 0 {
			return fmt.Errorf("culvert is not attached to %s here: see 'culvert status'", name)
		}
		planes[name] = all[i]
	}
	processes := make(map[*datapath.Instance]processInfo)
	for _, i := range planes {
		processes[i] = processOf(i) // what the process has published goes with the last interface
	}
	for _, name := range interfaces {
		if i := planes[name]; i != nil {
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
		if p := processes[i]; p.served {
			p.report(i, i.Attached(), out)
		}
	}
	return runstate.Sweep()
}

// processInfo describes the process of an instance that is about to be detached.
type processInfo struct {
	// served tells whether there is a process.
	served bool
	// detached is the configuration's setting of that name, "" if the process has not published it.
	detached string
}

// processOf describes the process of an instance. A process publishes its settings shortly after it has locked the data plane,
// so processOf waits up to two seconds for them.
func processOf(i *datapath.Instance) processInfo {
	info := processInfo{served: i.Served()}
	for range publishTries {
		p, known, err := i.Process()
		info.detached = p.Detached
		if !info.served || known || err != nil {
			break
		}
		time.Sleep(publishPause)
	}
	return info
}

const (
	publishTries = 40
	publishPause = 50 * time.Millisecond
)

// report writes what the process does after interfaces were detached. left are those that are still attached.
func (p processInfo) report(i *datapath.Instance, left []string, out io.Writer) {
	fmt.Fprintf(out, "%s is still served by a process, which %s\n", title(i), p.next(scionplane.Routes(i), left))
}

// next says what the process does next.
func (p processInfo) next(scion bool, left []string) string {
	setting := ""
	if p.detached != "" {
		setting = fmt.Sprintf(" (detached = %q)", p.detached)
	}
	on := strings.Join(left, ", ")
	switch {
	case p.detached == config.DetachedAttach:
		return "attaches again at once" + setting + ": to have it stay off, stop the process first"
	case p.detached == config.DetachedExit && on == "":
		return "ends now" + setting
	case scion && on == "":
		return "goes on with its slow path alone" + setting
	case scion:
		return "goes on with its slow path alone except on " + on
	case on != "":
		return "now works only on " + on
	}
	return "ends or attaches again, as its configuration says"
}

// DetachAll detaches culvert from every interface of this network namespace. It also removes instances and ends of tunnels, of
// any network namespace, that are attached to nothing any more and have no process. It writes to out what it has done.
func DetachAll(out io.Writer) error {
	all, err := datapath.List()
	if err != nil {
		return err
	}
	defer closeAll(all)
	report := &trackingWriter{Writer: out}
	var errs []error
	for _, i := range all {
		errs = append(errs, detachOrForget(i, report))
	}
	err = errors.Join(append(errs, detachEnds(report), decapplane.Forget(), runstate.Sweep())...)
	if err == nil && !report.written {
		fmt.Fprintln(out, "nothing of culvert is attached in this network namespace")
	}
	return err
}

// detachEnds detaches all ends of the load balancer's tunnels in this network namespace.
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

// detachOrForget removes an instance that is attached to nothing any more and has no process, and detaches one of this network
// namespace. It leaves others alone.
func detachOrForget(i *datapath.Instance, out io.Writer) error {
	name := title(i) // what tells the kind goes with the pins
	gone, err := i.Forget()
	if err != nil {
		return err
	}
	if gone {
		fmt.Fprintf(out, "%s of network namespace %d removed: it was on no interface\n", name, i.NetNS())
		return nil
	}
	if !i.Here() {
		return nil
	}
	p := processOf(i)
	if err := i.DetachAll(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s detached\n", name)
	if p.served {
		p.report(i, nil, out)
	}
	return nil
}

func closeAll(all []*datapath.Instance) {
	for _, i := range all {
		i.Close()
	}
}

// trackingWriter records whether anything was written.
type trackingWriter struct {
	io.Writer
	written bool
}

// Write implements io.Writer.
func (w *trackingWriter) Write(p []byte) (int, error) {
	w.written = true
	return w.Writer.Write(p)
}
