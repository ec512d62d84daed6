// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"culvert/internal/capture/captureplane"
	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/host/pins"
	"culvert/internal/host/pulse"
	"culvert/internal/route/routeplane"
)

// errDetached ends a process after its data plane was detached by hand, if the configuration has detached = "exit".
var errDetached = errors.New("the data plane was detached by somebody else")

// portPeriod is how often the interfaces are checked without a notification. The kernel sends none when a program is detached.
const portPeriod = time.Second

// follower keeps a data plane attached to the interfaces of its configuration.
type follower struct {
	inst     *datapath.Instance
	log      *slog.Logger
	detached string // one of config.DetachedAttach, config.DetachedExit and config.DetachedStay
	// checkPort returns an error for an interface that a stage does not work on. It may be nil.
	checkPort func(name string) error
	// restore brings the file's filter into force again after the data plane was removed, if the filter that went with it is
	// not known. It may be nil.
	restore func() error

	waiting    map[string]bool   // interfaces that do not exist, or carry no program yet since they were made again
	down       map[string]bool   // interfaces that carry the program, but are down or have no carrier
	retries    map[string]retry  // interfaces whose names others had before, which carry the program still
	swept      time.Time         // when a capture without a process was last looked for
	logged     map[string]string // the last message about each interface; "" is the data plane
	endsLogged map[string]string // the same for interfaces where tunnels end
	// bonds are the states of the members of bonds when they were last looked at.
	bonds map[string]map[string]string
}

// followPorts keeps the data plane of f attached to its interfaces until ctx ends. It returns errDetached if the process is to
// end because the data plane was detached.
func followPorts(ctx context.Context, f *follower, turns *pulse.Pulse) error {
	runtime.LockOSThread() // sockets and interfaces are those of the thread's network namespace
	defer runtime.UnlockOSThread()
	f.waiting, f.down, f.logged = make(map[string]bool), make(map[string]bool), make(map[string]string)
	f.retries = make(map[string]retry)
	f.bonds = make(map[string]map[string]string)
	for _, u := range f.inst.Unattached() {
		f.waiting[u.Interface] = true
	}
	done := make(chan struct{})
	defer close(done)
	links := make(chan netlink.LinkUpdate, 64)
	// An error is ignored: what notifications do not report is found at the next tick.
	_ = netlink.LinkSubscribeWithOptions(links, done, netlink.LinkSubscribeOptions{ErrorCallback: func(error) {}})
	tick := time.NewTicker(portPeriod)
	defer tick.Stop()
	defer turns.End()
	for {
		turns.Beat()
		if err := f.checkPorts(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case _, ok := <-links:
			if !ok {
				links = nil
			}
			for len(links) > 0 { // one check does for a burst of notifications
				<-links
			}
		}
	}
}

// logOnce writes a message about an interface, or with iface "" about the data plane, unless it was the last one about it.
func (f *follower) logOnce(level slog.Level, iface, text string, args ...any) {
	key := text + fmt.Sprint(args...)
	if f.logged[iface] == key {
		return
	}
	f.logged[iface] = key
	if iface != "" {
		args = append([]any{"interface", iface}, args...)
	}
	f.log.Log(context.Background(), level, text, args...)
}

// checkPorts attaches to interfaces that have lost the program or exist again, as the configuration says, and logs what it
// finds. It returns errDetached if the process is to end.
func (f *follower) checkPorts() error {
	if f.inst.Removed() {
		if err := f.removed(); err != nil || f.inst.Removed() {
			return err
		}
	}
	if f.detached == config.DetachedAttach {
		if err := f.inst.KeepFronts(); err != nil {
			f.logOnce(slog.LevelWarn, "", "the filter could not be read: rules made by hand go if somebody detaches the data plane", "err", err)
		}
	}
	f.sweepCapture()
	unattached := f.inst.Unattached()
	for _, u := range unattached {
		switch {
		case u.Why == pins.Gone:
			f.waiting[u.Interface] = true
			f.logOnce(slog.LevelWarn, u.Interface, goneText(u)+": culvert attaches to it when it does")
		case u.Why == pins.Replaced && !f.waiting[u.Interface]:
			f.attach(u, replacedText(u))
		case f.waiting[u.Interface]:
			f.attach(u, "")
		case f.detached == config.DetachedAttach:
			f.attach(u, "the program was taken off the interface by somebody else: it is attached again")
		default:
			f.logOnce(slog.LevelWarn, u.Interface, "the program was taken off the interface by somebody else, and stays off")
		}
	}
	f.checkUp()
	f.followBonds()
	f.followEnds()
	return nil
}

// capturePeriod is how often the follower looks for a capture without a process.
const capturePeriod = 5 * time.Second

// sweepCapture ends a capture whose process was killed: packets would take its instructions for nothing.
func (f *follower) sweepCapture() {
	now := time.Now()
	if now.Sub(f.swept) < capturePeriod {
		return
	}
	f.swept = now
	c, err := captureplane.View(f.inst)
	if err == nil && (c == nil || !c.LeftOver) {
		return
	}
	ended := false
	if err == nil {
		ended, err = captureplane.Sweep(f.inst, []datapath.Fronted{filterplane.NewPart()})
	}
	switch {
	case errors.Is(err, pins.ErrGone) || errors.Is(err, os.ErrNotExist): // the next check finds out why
	case err != nil:
		f.logOnce(slog.LevelWarn, "", "a capture could not be looked for or ended: packets may take its instructions for nothing", "err", err)
	case ended:
		f.log.Warn("the process of a capture was killed: the programs are as without a capture again", "expression", c.Expression)
	}
}

// checkUp logs which interfaces that carry the program are down, have no carrier or are ports of a bridge, and when they are up again.
func (f *follower) checkUp() {
	for name, d := range f.inst.Devices() {
		if f.waiting[name] { // it was in another namespace and is back with its program
			f.log.Info("the interface is there again, with the program", "interface", name)
		}
		delete(f.waiting, name)
		switch {
		case !d.Up:
			f.logOnce(slog.LevelWarn, name, "the interface is down: no packet comes in by it", "mend", "ip link set dev "+d.Name+" up")
		case !d.Carrier:
			f.logOnce(slog.LevelWarn, name, "the interface has no carrier: no packet comes in by it")
		case d.Bridge != "" && slices.Contains(f.inst.PartNames(), routeplane.Stage):
			f.logOnce(slog.LevelWarn, name, "the interface is a port of a bridge: the IP router leaves what comes in by it to the kernel",
				"bridge", d.Bridge, "mend", "ip link set dev "+d.Name+" nomaster")
		case f.down[name]:
			f.log.Info("the interface is up", "interface", name)
			fallthrough
		default:
			delete(f.logged, name)
		}
		f.down[name] = !d.Up || !d.Carrier
	}
}

// goneText says why an interface is not there.
func goneText(u pins.Unattached) string {
	if u.Moved {
		return "the interface was moved to another network namespace and does not exist here"
	}
	return "the interface does not exist"
}

// replacedText says what became of the interface whose name another one has now.
func replacedText(u pins.Unattached) string {
	switch {
	case u.Renamed != "":
		return "the interface was renamed to " + u.Renamed + ", which still carries the program, and another one has its name"
	case u.Moved:
		return "the interface was moved to another network namespace, and another one has its name"
	}
	return "the interface was deleted and made again"
}

// retry is when an attempt to attach may be repeated, and how long to wait after the next one.
type retry struct {
	at   time.Time
	wait time.Duration
}

// maxRetry is the longest time between two attempts to attach to an interface whose former bearer of the name carries the program.
const maxRetry = time.Minute

// later returns when to try again after a failure at now.
func (r retry) later(now time.Time) retry {
	wait := max(r.wait, portPeriod)
	return retry{at: now.Add(wait), wait: min(2*wait, maxRetry)}
}

// attach attaches the data plane to an interface and logs that, after a warning with the reason, if why is not "".
func (f *follower) attach(u pins.Unattached, why string) {
	name := u.Interface
	// An attempt makes rules for this name those of the new interface for a moment, and puts that right when it fails.
	if u.Renamed != "" && time.Now().Before(f.retries[name].at) {
		return
	}
	var err error
	if f.checkPort != nil {
		err = f.checkPort(name)
	}
	if err == nil {
		err = f.inst.AttachPort(u)
	}
	if errors.Is(err, pins.ErrGone) {
		return // the next check finds out why
	}
	if why != "" {
		f.logOnce(slog.LevelWarn, name, why)
	}
	if err != nil {
		f.waiting[name] = true
		f.retries[name] = f.retries[name].later(time.Now())
		f.logOnce(slog.LevelError, name, "the interface is there and carries no program", "err", err)
		return
	}
	delete(f.waiting, name)
	delete(f.retries, name)
	f.log.Info("attached to the interface", "interface", name)
}

// removed does what the configuration says about a data plane that was detached by hand from all interfaces.
func (f *follower) removed() error {
	const what = "the data plane was detached by somebody else"
	interfaces := strings.Join(f.inst.Configured(), " ")
	switch f.detached {
	case config.DetachedExit:
		f.logOnce(slog.LevelWarn, "", what+": the process ends (detached = \"exit\")", "interfaces", interfaces)
		return errDetached
	case config.DetachedStay:
		f.logOnce(slog.LevelWarn, "", what+": the slow path goes on alone (detached = \"stay\")", "interfaces", interfaces)
		return nil
	}
	f.logOnce(slog.LevelWarn, "", what+": it is being attached again (detached = \"attach\")", "interfaces", interfaces)
	filtered, err := f.inst.Restore()
	if err == nil && !filtered && f.restore != nil {
		err = f.restore()
	}
	if err != nil {
		return fmt.Errorf("attaching again what somebody else has detached: %w", err)
	}
	for _, u := range f.inst.Unattached() {
		f.waiting[u.Interface] = true
	}
	delete(f.logged, "")
	return nil
}
