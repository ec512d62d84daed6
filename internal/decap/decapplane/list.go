// SPDX-License-Identifier: Apache-2.0

package decapplane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"culvert/internal/bpfobj"
	"culvert/internal/host/pins"
	"culvert/internal/stats"
)

// End is the end of tunnels on an interface.
type End struct {
	Interface string
	Options   Options
	// Unattached is pins.Gone or pins.Replaced if the interface was deleted or moved to another network namespace. It is empty
	// if the interface carries the program.
	Unattached string
	// Reasons has packets, and bytes of the frames as received, by reason. Reasons without packets are left out.
	Reasons []stats.Reason
}

// List returns the ends of tunnels of this network namespace, sorted by interface. It includes those whose interfaces were
// deleted or moved to another network namespace.
func List() ([]End, error) {
	dir, ok, err := dirHere()
	if err != nil || !ok {
		return nil, err
	}
	var all []End
	for _, p := range pins.Read(dir) {
		l, err := link.LoadPinnedLink(p.Path, nil)
		if bpfobj.NotExist(err) {
			continue // detached meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("opening %s: %w", p.Path, err)
		}
		d, err := readEnd(p, l)
		l.Close()
		if err != nil {
			return nil, fmt.Errorf("reading the end of tunnels on %s: %w", p.Name, err)
		}
		if d != nil {
			all = append(all, *d)
		}
	}
	all = slices.DeleteFunc(all, func(d End) bool { // another interface has the name now, with an end of its own
		return d.Unattached != "" && slices.ContainsFunc(all, func(o End) bool { return o.Unattached == "" && o.Interface == d.Interface })
	})
	slices.SortFunc(all, func(a, b End) int { return strings.Compare(a.Interface, b.Interface) })
	return all, nil
}

// readEnd reads the end of tunnels of a link. It returns nil if the link is of another network namespace.
func readEnd(at pins.Pin, l link.Link) (*End, error) {
	p, err := open(l)
	if err != nil {
		return nil, err
	}
	defer p.close()
	var r record
	if err := p.readRecord(&r); err != nil {
		return nil, err
	}
	d := &End{Interface: at.Now, Options: r.Options}
	if at.Now != "" {
		d.Options.Generic, err = xdpGeneric(&net.Interface{Index: at.Index, Name: at.Now})
	} else {
		d.Interface, d.Unattached, err = r.lost(at)
	}
	if err != nil || d.Interface == "" {
		return nil, err
	}
	d.Reasons, err = p.reasons()
	return d, err
}

// lost returns the interface that a link was made for which is on no interface of this network namespace, and why it is not:
// pins.Gone or pins.Replaced. Both are empty if the name is unknown, and if the link is of an earlier namespace with the same
// inode number.
func (r *record) lost(at pins.Pin) (iface, why string, err error) {
	cookie, err := pins.Cookie()
	if err != nil || r.Cookie != cookie || at.Aside() {
		return "", "", err
	}
	why = pins.Replaced
	if pins.NoInterface(at.Name) {
		why = pins.Gone
	}
	return at.Name, why, nil
}

// open opens the program of a link and its counters.
func open(l link.Link) (*program, error) {
	info, err := l.Info()
	if err != nil {
		return nil, err
	}
	prog, err := ebpf.NewProgramFromID(info.Program)
	if err != nil {
		return nil, fmt.Errorf("opening program %d: %w", info.Program, err)
	}
	p := &program{prog: prog}
	if p.counters, err = p.mapNamed(bpfobj.DecapMapDecapCounters); err != nil {
		prog.Close()
		return nil, err
	}
	return p, nil
}

// mapNamed opens a map of the program.
func (p *program) mapNamed(name string) (*ebpf.Map, error) {
	info, err := p.prog.Info()
	if err != nil {
		return nil, err
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, fmt.Errorf("opening map %d: %w", id, err)
		}
		if mi, err := m.Info(); err == nil && mi.Name == name {
			return m, nil
		}
		m.Close()
	}
	return nil, fmt.Errorf("its program has no map %s", name)
}

// readRecord reads what is stored with the program.
func (p *program) readRecord(r *record) error {
	m, err := p.mapNamed(optionsMap)
	if err != nil {
		return err
	}
	defer m.Close()
	b, err := m.LookupBytes(uint32(0))
	if err != nil || b == nil {
		return errors.Join(errors.New("reading its options"), err)
	}
	return json.Unmarshal(bytes.TrimRight(b, "\x00"), r)
}

// reasons reads the counters. Reasons without packets are left out.
func (p *program) reasons() ([]stats.Reason, error) {
	var all []stats.Reason
	for n, r := range Reasons() {
		var each []bpfobj.DecapDecapCounter
		if err := p.counters.Lookup(uint32(n), &each); err != nil {
			return nil, fmt.Errorf("reading the counters: %w", err)
		}
		sum := stats.Reason{Name: r.Name, Verdict: r.Verdict, Text: r.Text}
		for _, c := range each {
			sum.Packets += c.Packets
			sum.Bytes += c.Bytes
		}
		if sum.Packets > 0 {
			all = append(all, sum)
		}
	}
	return all, nil
}
