// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Router is a kind of router.
type Router string

const (
	// Reference is the border router of scionproto.
	Reference Router = "reference"
	// Culvert is culvert, as 'culvert scion run'.
	Culvert Router = "culvert"
	// Linux is forwarding by the kernel, without culvert (topology bgp).
	Linux Router = "linux"
)

func (r Router) check() error {
	if r != Reference && r != Culvert {
		return fmt.Errorf("no router %q: choose %s or %s", r, Reference, Culvert)
	}
	return nil
}

// routerGrace is the time between a signal to a router and SIGKILL.
const routerGrace = 10 * time.Second

// routedASes are the namespaces of topology scion3 that have a router.
var routedASes = []string{"as1", "as2", "as3"}

// router returns the kind of router of an AS. The default is Culvert for the AS in the
// middle and Reference for the others.
func (o Options) router(ns string) Router {
	if r, ok := o.Routers[ns]; ok {
		return r
	}
	if ns == "as2" {
		return Culvert
	}
	return Reference
}

// ParseCulvert parses which routers of a topology are culvert. In bgp that is "rut"
// or "none". In scion3 it is "all", "none", or names of ASes separated by commas; the
// others have the reference router.
func ParseCulvert(kind, list string) (map[string]Router, error) {
	if kind == "bgp" {
		switch list {
		case "rut", "all":
			return map[string]Router{"rut": Culvert}, nil
		case "none":
			return map[string]Router{"rut": Linux}, nil
		}
		return nil, fmt.Errorf("%w: no router %q for culvert: give rut or none", ErrOptions, list)
	}
	routers := make(map[string]Router)
	for _, as := range routedASes {
		routers[as] = Reference
		if list == "all" {
			routers[as] = Culvert
		}
	}
	if list == "all" || list == "none" {
		return routers, nil
	}
	for _, as := range strings.Split(list, ",") {
		if !slices.Contains(routedASes, as) {
			return nil, fmt.Errorf("%w: no AS %q for culvert: give all, none, or some of %s",
				ErrOptions, as, strings.Join(routedASes, ","))
		}
		routers[as] = Culvert
	}
	return routers, nil
}

func (l *Lab) ases() []AS {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ASes)
}

// AS returns the AS whose router is in a namespace.
func (l *Lab) AS(ns string) (AS, error) {
	for _, as := range l.ases() {
		if as.NS == ns {
			return as, nil
		}
	}
	return AS{}, fmt.Errorf("lab %s has no AS in namespace %q", l.Name, ns)
}

// routerProcess returns the name of the process of an AS's router.
func routerProcess(ns string) string { return ns + "-router" }

// RouterPID returns the process ID of an AS's router.
func (l *Lab) RouterPID(ns string) (int, error) {
	p, err := l.Process(routerProcess(ns))
	if err != nil {
		return 0, err
	}
	if !p.Alive() {
		return 0, fmt.Errorf("the router of %s has ended: %s", ns, lastLine(p.Log))
	}
	return p.PID, nil
}

// StartRouter starts a router in an AS. It does not wait until its links are up.
func (l *Lab) StartRouter(ns string, kind Router) error {
	if err := kind.check(); err != nil {
		return err
	}
	as, err := l.AS(ns)
	if err != nil {
		return err
	}
	if pid, err := l.RouterPID(ns); err == nil {
		return fmt.Errorf("a router runs in %s already, process %d: stop it first", ns, pid)
	}
	argv := []string{filepath.Join(l.Peers, "router"), "--config", as.RouterConfig}
	if kind == Culvert {
		argv = []string{l.Culvert, "scion", "run", "--config", as.RouterConfig}
	}
	l.mu.Lock()
	for i := range l.ASes {
		if l.ASes[i].NS == ns {
			l.ASes[i].Router = kind
		}
	}
	l.mu.Unlock()
	return l.spawn(routerProcess(ns), ns, argv...)
}

// StopRouter ends the router of an AS with a signal and waits for the end. Culvert's
// pinned data plane stays and goes on forwarding.
func (l *Lab) StopRouter(ns string, sig syscall.Signal) error { return l.Stop(routerProcess(ns), sig) }

// Stop ends a process of the lab with a signal and waits for the end.
func (l *Lab) Stop(process string, sig syscall.Signal) error {
	p, err := l.Process(process)
	if err != nil {
		return err
	}
	return endAll([]Process{p}, sig, routerGrace)
}

// RestartRouter kills the router of an AS, if it runs, and starts one of a kind. If
// the reference router replaces culvert, RestartRouter detaches culvert's data plane.
// Otherwise the data plane stays, and culvert adopts it. RestartRouter does not wait
// until the links are up; WaitPaths does.
func (l *Lab) RestartRouter(ns string, kind Router) error {
	as, err := l.AS(ns)
	if err != nil {
		return err
	}
	if err := kind.check(); err != nil {
		return err
	}
	if _, err := l.RouterPID(ns); err == nil {
		if err := l.StopRouter(ns, syscall.SIGKILL); err != nil {
			return err
		}
	}
	if as.Router == Culvert && kind == Reference {
		if err := l.dropPins(ns); err != nil {
			return err
		}
	}
	return l.StartRouter(ns, kind)
}

// dropPins removes culvert's pins of one namespace.
func (l *Lab) dropPins(ns string) error {
	var errs []error
	for inode, name := range l.inodes() {
		if name == ns {
			errs = append(errs, removePins(inode))
		}
	}
	return join(errs...)
}
