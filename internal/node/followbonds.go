// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"strings"

	"culvert/internal/host/netdev"
)

// followBonds keeps the data plane in step with the members of bonds, and logs what changes about them.
func (f *follower) followBonds() {
	bonds, err := f.inst.FollowBonds()
	f.logUnfollowed(err)
	for name, b := range bonds {
		before, known := f.bonds[name]
		now := make(map[string]string)
		live := 0
		for _, m := range b.Members {
			now[m.Name] = m.State()
			if m.Live {
				live++
			}
			if known && before[m.Name] != m.State() {
				f.log.Info("a member of the bond has changed", "interface", name, "member", m.Name, "state", m.State())
			}
		}
		for member := range before {
			if _, still := now[member]; !still {
				f.log.Info("a member has left the bond", "interface", name, "member", member)
			}
		}
		f.bonds[name] = now
		f.logBond(name, b, live)
	}
}

// logUnfollowed logs when members of bonds cannot be followed, and the end of that.
func (f *follower) logUnfollowed(err error) {
	const key = "bonds and members" // no interface has a name with spaces
	switch {
	case err != nil && f.logged[key] != err.Error():
		f.logged[key] = err.Error()
		f.log.Error("the members of bonds could not be followed", "err", err)
	case err == nil && f.logged[key] != "":
		delete(f.logged, key)
		f.log.Info("all members of bonds are followed")
	}
}

// logBond logs when a bond that is up carries nothing, or no longer runs the program on its members, and the end of that.
func (f *follower) logBond(name string, b *netdev.Bond, live int) {
	var text string
	var args []any
	wrong, command := b.WithoutXDP()
	switch {
	case len(b.Members) == 0:
		text = "the bond has no members: no packet comes in by it"
	case live == 0:
		text = "no member of the bond is live: no packet comes in by it"
	case wrong != "" && !f.inst.Generic():
		text, args = "the bond does not run the program: the kernel forwards what comes in by it", []any{"why", wrong, "mend", command}
	}
	key := "bond " + name
	switch {
	case text != "":
		args = append(args, "interface", name, "members", strings.Join(memberNames(b), " "))
		if now := text + fmt.Sprint(args...); f.logged[key] != now {
			f.logged[key] = now
			f.log.Warn(text, args...)
		}
	case f.logged[key] != "":
		delete(f.logged, key)
		f.log.Info("the bond has a live member", "interface", name)
	}
}

func memberNames(b *netdev.Bond) (names []string) {
	for _, m := range b.Members {
		names = append(names, m.Name)
	}
	return names
}
