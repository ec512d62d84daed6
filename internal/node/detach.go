// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"culvert/internal/datapath"
)

// Detach takes culvert off interfaces of this network namespace, the end of the load balancer's tunnels
// too; nothing is touched if one of them does not carry it.
func Detach(interfaces []string, out io.Writer) error {
	all, err := datapath.ListHere()
	if err != nil {
		return err
	}
	defer closeAll(all)
	ends, err := datapath.Decaps()
	if err != nil {
		return err
	}
	isEnd := func(name string) bool {
		return slices.ContainsFunc(ends, func(d datapath.Decap) bool { return d.Interface == name })
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
	served := make(map[*datapath.Instance]bool)
	for _, i := range owners {
		served[i] = i.Served() // the last interface takes with it what tells
	}
	for _, name := range interfaces {
		if i := owners[name]; i != nil {
			err = i.Detach(name)
		} else {
			_, err = datapath.DetachDecap(name)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "detached from %s\n", name)
	}
	for _, i := range all {
		if served[i] {
			tellServed(i, i.Attached(), out)
		}
	}
	return nil
}

// tellServed says what the process of an instance does without interfaces it had; left are those
// that are still attached.
func tellServed(i *datapath.Instance, left []string, out io.Writer) {
	goesOn := "goes on with its slow path alone"
	switch {
	case isSCION(i):
	case len(left) > 0:
		goesOn = "has nothing to do"
	default:
		goesOn = "ends or attaches again, as its configuration says"
	}
	fmt.Fprintf(out, "router %s is still served by a process, which %s", i.Name(), goesOn)
	if len(left) > 0 {
		fmt.Fprintf(out, " except on %s", strings.Join(left, ", "))
	}
	fmt.Fprintln(out)
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
	err = errors.Join(append(errs, detachEnds(told), datapath.ForgetDecaps())...)
	if err == nil && !told.any {
		fmt.Fprintln(out, "nothing of culvert is attached in this network namespace")
	}
	return err
}

// detachEnds takes the ends of the load balancer's tunnels off.
func detachEnds(out io.Writer) error {
	ends, err := datapath.Decaps()
	if err != nil {
		return err
	}
	for _, d := range ends {
		if _, err := datapath.DetachDecap(d.Interface); err != nil {
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
	served := i.Served()
	if err := i.DetachAll(); err != nil {
		return err
	}
	fmt.Fprintf(out, "router %s detached\n", i.Name())
	if served {
		tellServed(i, nil, out)
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
