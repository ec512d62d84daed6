// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"culvert/internal/datapath"
)

// Detach takes culvert off interfaces of this network namespace; nothing is touched if one of them
// does not carry it.
func Detach(interfaces []string, out io.Writer) error {
	all, err := datapath.ListHere()
	if err != nil {
		return err
	}
	defer closeAll(all)
	owners := make(map[string]*datapath.Instance)
	for _, name := range interfaces {
		i := slices.IndexFunc(all, func(i *datapath.Instance) bool {
			return slices.Contains(i.Attached(), name)
		})
		if i < 0 {
			return fmt.Errorf("culvert is not attached to %s here: see 'culvert status'", name)
		}
		owners[name] = all[i]
	}
	for _, name := range interfaces {
		if err := owners[name].Detach(name); err != nil {
			return err
		}
		fmt.Fprintf(out, "detached from %s\n", name)
	}
	return nil
}

// DetachAll takes culvert off every interface of this network namespace, and removes what is left
// of instances, of whatever namespace, that are attached to nothing any more and not served.
func DetachAll(out io.Writer) error {
	all, err := datapath.List()
	if err != nil {
		return err
	}
	defer closeAll(all)
	var errs []error
	for _, i := range all {
		errs = append(errs, detachOrForget(i, out))
	}
	return errors.Join(errs...)
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
	if i.Served() {
		fmt.Fprintf(out, "router %s is still served by a process, which goes on with its slow path alone\n", i.Name())
	}
	if err := i.DetachAll(); err != nil {
		return err
	}
	fmt.Fprintf(out, "router %s detached\n", i.Name())
	return nil
}

func closeAll(all []*datapath.Instance) {
	for _, i := range all {
		i.Close()
	}
}
