// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/host/pins"
)

// errDetached ends a process whose data plane somebody else has taken away, as the configuration wants it.
var errDetached = errors.New("the data plane was detached by somebody else")

// portPeriod is how often the interfaces are looked at without a word from the kernel. A detached program is not told of.
const portPeriod = time.Second

// follower keeps a data plane on the interfaces that it was told to be on.
type follower struct {
	inst     *datapath.Instance
	log      *slog.Logger
	detached string // config.Detached...
	// check refuses an interface, restore brings the file's filter back if what went with a data plane that was removed is
	// not known. Both may be nil.
	check   func(name string) error
	restore func() error

	waiting map[string]bool   // interfaces that were not there, or have gone
	down    map[string]bool   // interfaces that carry the program and by which nothing comes
	told    map[string]string // what the log says last of an interface, "" is the data plane
	ends    map[string]string // the same of interfaces where tunnels end
}

// followPorts keeps inst on its interfaces until ctx ends. It returns errDetached if the process is to end.
func followPorts(ctx context.Context, f *follower) error {
	runtime.LockOSThread() // sockets and interfaces are those of the thread's network namespace
	defer runtime.UnlockOSThread()
	f.waiting, f.down, f.told = make(map[string]bool), make(map[string]bool), make(map[string]string)
	for _, u := range f.inst.Unattached() {
		f.waiting[u.Interface] = true
	}
	done := make(chan struct{})
	defer close(done)
	links := make(chan netlink.LinkUpdate, 64)
	// What is lost, also by a failure to subscribe, is found at the next tick.
	_ = netlink.LinkSubscribeWithOptions(links, done, netlink.LinkSubscribeOptions{ErrorCallback: func(error) {}})
	tick := time.NewTicker(portPeriod)
	defer tick.Stop()
	for {
		if err := f.look(); err != nil {
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
			for len(links) > 0 { // they come in crowds
				<-links
			}
		}
	}
}

// say logs what is new about an interface; nothing is said twice.
func (f *follower) say(level slog.Level, iface, text string, args ...any) {
	key := text + fmt.Sprint(args...)
	if f.told[iface] == key {
		return
	}
	f.told[iface] = key
	if iface != "" {
		args = append([]any{"interface", iface}, args...)
	}
	f.log.Log(context.Background(), level, text, args...)
}

func (f *follower) look() error {
	if f.inst.Removed() {
		if err := f.removed(); err != nil || f.inst.Removed() {
			return err
		}
	}
	if f.detached == config.DetachedAttach {
		if err := f.inst.KeepFronts(); err != nil {
			f.say(slog.LevelWarn, "", "the filter could not be read: rules made by hand go if somebody detaches the data plane", "err", err)
		}
	}
	unattached := f.inst.Unattached()
	for _, u := range unattached {
		switch {
		case u.Why == pins.Gone:
			f.waiting[u.Interface] = true
			f.say(slog.LevelWarn, u.Interface, gone(u)+": culvert attaches to it when it does")
		case u.Why == pins.Replaced && !f.waiting[u.Interface]:
			f.attach(u, replaced(u))
		case f.waiting[u.Interface]:
			f.attach(u, "")
		case f.detached == config.DetachedAttach:
			f.attach(u, "the program was taken off the interface by somebody else: it is attached again")
		default:
			f.say(slog.LevelWarn, u.Interface, "the program was taken off the interface by somebody else, and stays off")
		}
	}
	f.lookUp()
	f.followEnds()
	return nil
}

// lookUp says which interfaces that carry the program are down.
func (f *follower) lookUp() {
	for name, d := range f.inst.Devices() {
		if f.waiting[name] { // it was moved back, not made again
			f.log.Info("the interface is there again, with the program", "interface", name)
		}
		delete(f.waiting, name)
		switch {
		case !d.Up:
			f.say(slog.LevelWarn, name, "the interface is down: no packet comes in by it", "mend", "ip link set dev "+d.Name+" up")
		case !d.Carrier:
			f.say(slog.LevelWarn, name, "the interface has no carrier: no packet comes in by it")
		case f.down[name]:
			f.log.Info("the interface is up", "interface", name)
			fallthrough
		default:
			delete(f.told, name)
		}
		f.down[name] = !d.Up || !d.Carrier
	}
}

// gone says why an interface is not there.
func gone(u pins.Unattached) string {
	if u.Moved {
		return "the interface was moved to another network namespace and does not exist here"
	}
	return "the interface does not exist"
}

// replaced says what became of the interface that had the name.
func replaced(u pins.Unattached) string {
	switch {
	case u.Renamed != "":
		return "the interface was renamed to " + u.Renamed + ", which still carries the program, and another one has its name"
	case u.Moved:
		return "the interface was moved to another network namespace, and another one has its name"
	}
	return "the interface was deleted and made again"
}

// attach attaches to an interface, and says why that was needed.
func (f *follower) attach(u pins.Unattached, why string) {
	name := u.Interface
	var err error
	if f.check != nil {
		err = f.check(name)
	}
	if err == nil {
		err = f.inst.AttachPort(u)
	}
	if errors.Is(err, pins.ErrGone) {
		return // the next look finds out what has become of it
	}
	if why != "" {
		f.say(slog.LevelWarn, name, why)
	}
	if err != nil {
		f.waiting[name] = true
		f.say(slog.LevelError, name, "the interface is there and carries no program", "err", err)
		return
	}
	delete(f.waiting, name)
	f.log.Info("attached to the interface", "interface", name)
}

// removed does what the configuration says about a data plane that somebody has taken away.
func (f *follower) removed() error {
	const what = "the data plane was detached by somebody else"
	wanted := strings.Join(f.inst.Configured(), " ")
	switch f.detached {
	case config.DetachedExit:
		f.say(slog.LevelWarn, "", what+": the process ends (detached = \"exit\")", "interfaces", wanted)
		return errDetached
	case config.DetachedStay:
		f.say(slog.LevelWarn, "", what+": the slow path goes on alone (detached = \"stay\")", "interfaces", wanted)
		return nil
	}
	f.say(slog.LevelWarn, "", what+": it is being attached again (detached = \"attach\")", "interfaces", wanted)
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
	delete(f.told, "")
	return nil
}
