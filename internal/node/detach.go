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

// DetachAll takes culvert off every interface of this network namespace.
func DetachAll(out io.Writer) error {
	all, err := datapath.ListHere()
	if err != nil {
		return err
	}
	defer closeAll(all)
	var errs []error
	for _, i := range all {
		if i.Served() {
			fmt.Fprintf(out, "router %s is still served by a process, which goes on with its slow path alone\n", i.Name())
		}
		if err := i.DetachAll(); err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(out, "router %s detached\n", i.Name())
	}
	return errors.Join(errs...)
}

func closeAll(all []*datapath.Instance) {
	for _, i := range all {
		i.Close()
	}
}
