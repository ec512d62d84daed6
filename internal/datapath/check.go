// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"culvert/internal/host/netdev"
	"culvert/internal/host/pins"
)

// normalize fills in defaults, and returns an error for options that no host takes.
func (o *Options) normalize() (err error) {
	o.Parts = withObservers(o.Parts)
	if o.Workers, err = o.Workers.normal(); err != nil {
		return err
	}
	if len(o.Interfaces) > MaxPorts {
		return fmt.Errorf("%d interfaces: one instance carries at most %d", len(o.Interfaces), MaxPorts)
	}
	return nil
}

// Problem is an error with which Attach would be refused.
type Problem struct {
	// Interface is the interface that the error is about, "" for none.
	Interface string
	// Mode tells whether the error is about the mode.
	Mode bool
	Err  error
}

// Check returns the errors with which Attach would refuse options, as far as that can be known without touching anything, and
// the interfaces that it would wait for. It does not look at parts. running is the data plane of that name in this network
// namespace, nil if there is none.
func Check(o Options, running *Instance) (problems []Problem, missing []string) {
	add := func(name string, err error) {
		if err != nil {
			problems = append(problems, Problem{Interface: name, Err: err})
		}
	}
	add("", o.normalize())
	if len(o.Interfaces) == 0 {
		_, err := pins.Interfaces(nil, o.Wait)
		add("", err)
	}
	if err := checkMode(running, o); err != nil {
		problems = append(problems, Problem{Mode: true, Err: err})
	}
	dir, err := instanceDir(o.Name)
	add("", err)
	unknown := err != nil // which programs are this data plane's
	named, _ := pins.Interfaces(o.Interfaces, true)
	for _, name := range o.Interfaces {
		ports, err := pins.Interfaces([]string{name}, o.Wait)
		add(name, err)
		if err == nil && len(ports) == 0 {
			missing = append(missing, name)
		}
		for _, p := range ports {
			if !unknown {
				add(name, pins.CheckForeign(dir, ports))
				add(name, pins.CheckAbove(dir, p, named))
			}
			if !o.Generic {
				add(name, checkNative(p))
			}
		}
	}
	return problems, missing
}

// instanceDir returns the directory of an instance in this network namespace, which may not exist, or "" without a bpffs.
func instanceDir(name string) (string, error) {
	root, ok, err := pins.Root()
	if !ok || err != nil {
		return "", err
	}
	here, err := pins.Here()
	if err != nil {
		return "", err
	}
	return filepath.Join(pins.Dir(root, here.Inode), pins.Escape(name)), nil
}

// checkNative returns an error for an interface whose driver does not run XDP, if the kernel tells.
func checkNative(p *net.Interface) error {
	b, err := netdev.BondOf(p.Index)
	if err != nil || b != nil {
		return errors.Join(err, checkBond(b))
	}
	if err := checkVLANDevice(p); err != nil {
		return err
	}
	client, err := netdev.Open(netdev.XDPFamily)
	if err != nil {
		return nil // before Linux 6.3: the kernel refuses to attach
	}
	defer client.Close()
	if acts, known := client.XDPActs(p.Index); known && acts&netdev.ActBasic == 0 {
		wrong, command := netdev.ReadChannels(p.Name).TooManyForXDP(p.Name, netdev.ReadDriver(p.Name))
		switch {
		case command != "":
			return fmt.Errorf("%s: %s: %s", p.Name, wrong, command)
		case wrong != "":
			return fmt.Errorf("%s: %s", p.Name, wrong)
		}
		if netdev.ReadDriver(p.Name) == "veth" {
			return fmt.Errorf("%s has fewer receive queues than its peer has transmit queues, and the kernel refuses XDP then: "+
				"'culvert doctor -i %[1]s' has the command", p.Name)
		}
		return fmt.Errorf("%s does not run XDP in its driver: see 'culvert doctor -i %[1]s'", p.Name)
	}
	return nil
}
