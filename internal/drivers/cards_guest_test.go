// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/guest/cards"
	"culvert/internal/testbed"
)

// settings are what tests change about a card.
type settings struct {
	name     string
	mtu      int
	flags    uint32
	combined string
	features map[string]string
}

// changed are the flags of an interface that tests change.
const changed = unix.IFF_UP | unix.IFF_NOARP | unix.IFF_PROMISC

// settingsOf reads the settings of a device of the calling thread's namespace.
func settingsOf(l netlink.Link) (s settings, err error) {
	s = settings{name: l.Attrs().Name, mtu: l.Attrs().MTU, flags: l.Attrs().RawFlags & changed, features: make(map[string]string)}
	out, err := exec.Command("ethtool", "-k", s.name).CombinedOutput()
	if err != nil {
		return s, fmt.Errorf("ethtool -k %s: %w: %s", s.name, err, out)
	}
	for line := range strings.Lines(string(out)) {
		what, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if value == "on" || value == "off" { // others cannot be changed
			s.features[what] = value
		}
	}
	// A card without such a setting makes this fail.
	out, _ = exec.Command("ethtool", "-l", s.name).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if n, is := strings.CutPrefix(line, "Combined:"); is {
			s.combined = strings.TrimSpace(n) // the last one is the present one
		}
	}
	return s, nil
}

// restore gives a device of the calling thread's namespace the settings back. It sets the device down for that.
func (s settings) restore(l netlink.Link) error {
	if err := netlink.LinkSetDown(l); err != nil {
		return err
	}
	err := errors.Join(netlink.LinkSetName(l, s.name), netlink.LinkSetMTU(l, s.mtu))
	if s.flags&unix.IFF_NOARP == 0 {
		err = errors.Join(err, netlink.LinkSetARPOn(l))
	}
	if s.flags&unix.IFF_PROMISC == 0 {
		err = errors.Join(err, netlink.SetPromiscOff(l))
	}
	l, lookErr := netlink.LinkByIndex(l.Attrs().Index)
	if err = errors.Join(err, lookErr); err != nil {
		return err
	}
	now, err := settingsOf(l)
	if err != nil {
		return err
	}
	if now.combined != s.combined {
		err = ethtool("-L", s.name, "combined", s.combined)
	}
	change := []string{"-K", s.name} // all at once, since some drivers change two of them together only
	for what, value := range s.features {
		if now.features[what] != value {
			change = append(change, what, value)
		}
	}
	if len(change) > 2 {
		err = errors.Join(err, ethtool(change...))
	}
	if s.flags&unix.IFF_UP != 0 {
		err = errors.Join(err, netlink.LinkSetUp(l))
	}
	return err
}

func ethtool(args ...string) error {
	if out, err := exec.Command("ethtool", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ethtool %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// lend moves a card into a namespace, under a name, until the test ends. Then the machine has it back as it was. The kernel gives back the
// cards of a namespace that is gone, but some time later and changed, and a thread or a socket may keep the namespace for good.
func lend(t *testing.T, space *testbed.Namespace, mac net.HardwareAddr, name string) {
	t.Helper()
	before, err := settingsOf(linkOf(t, mac))
	if err != nil {
		t.Fatal(err)
	}
	take(t, space, mac, name)
	t.Cleanup(func() {
		if err := giveBack(space, name, before); err != nil {
			t.Errorf("give %s back to the machine: %v", name, err)
		}
	})
}

// take moves a card into a namespace, under a name.
func take(t *testing.T, space *testbed.Namespace, mac net.HardwareAddr, name string) {
	t.Helper()
	l := linkOf(t, mac)
	if err := errors.Join(netlink.LinkSetDown(l), netlink.LinkSetName(l, name)); err != nil {
		t.Fatal(err)
	}
	space.Take(t, name)
}

// giveBack moves a card from a namespace to that of the calling thread, with the settings that it had there.
func giveBack(space *testbed.Namespace, name string, before settings) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := unix.Gettid()
	if err := space.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		all, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, above := range all { // VLAN devices stay behind, and in the way of others
			if above.Type() == "vlan" && above.Attrs().ParentIndex == l.Attrs().Index {
				err = errors.Join(err, netlink.LinkDel(above))
			}
		}
		return errors.Join(err, netlink.LinkSetDown(l), netlink.LinkSetNsPid(l, tid))
	}); err != nil {
		return err
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return before.restore(l)
}

// TestCardsComeBack uses the cards as the other tests do, and leaves culvert attached as one that fails may. The next test finds all of them as
// they were.
func TestCardsComeBack(t *testing.T) {
	look := func() map[string]settings {
		found := make(map[string]settings)
		links, err := netlink.LinkList()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if mac := l.Attrs().HardwareAddr; len(mac) == 6 && mac[0] == cards.Near(0)[0] && mac[1] == cards.Near(0)[1] {
				if found[mac.String()], err = settingsOf(l); err != nil {
					t.Fatal(err)
				}
			}
		}
		return found
	}
	before := look()
	if n := 2 * len(strings.Split(*wiresFlag, "+")); len(before) != n {
		t.Fatalf("the machine has %d cards, want %d", len(before), n)
	}
	for _, round := range []string{"first", "second"} {
		t.Run(round, func(t *testing.T) {
			b := newBed(t)
			in, out := b.pair(t, "virtio_net*4")
			b.must(t, "ethtool", "-L", in.name, "combined", "1")
			b.must(t, "ethtool", "-K", in.name, "gro", "off")
			b.must(t, "ethtool", "-K", b.ports["e1000e"][0].name, "rxvlan", "off", "txvlan", "off")
			b.here.Must(t, func() error {
				l, err := netlink.LinkByName(out.name)
				return errors.Join(err, netlink.LinkSetMTU(l, 1280), out.upVLAN(9))
			})
			b.attach(t, config("native", b.ports["virtio_net"]...))
		})
		for mac, want := range before {
			if now, there := look()[mac]; !there || !reflect.DeepEqual(now, want) {
				t.Errorf("the card %s is %+v (there: %t), want %+v", mac, now, there, want)
			}
		}
	}
}
