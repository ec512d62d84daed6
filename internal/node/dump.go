// SPDX-License-Identifier: Apache-2.0

package node

import (
	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/lb/lbplane"
)

// BesideFilter returns the tables that the configuration of a data plane needs beside [filter] to be as it is.
func BesideFilter(inst *datapath.Instance) ([]string, error) {
	return tablesBeside(inst, filterplane.Stage)
}

// BesideLB is BesideFilter for [lb].
func BesideLB(inst *datapath.Instance) ([]string, error) { return tablesBeside(inst, lbplane.Stage) }

func tablesBeside(inst *datapath.Instance, stage string) (tables []string, err error) {
	for _, name := range inst.PartNames() {
		switch name {
		case stage:
			continue
		case filterplane.Stage: // it is a part of each data plane
			f, err := filterplane.Read(inst)
			if err != nil {
				return nil, err
			}
			if len(f.Rules)+len(f.Sets)+len(f.Services) == 0 {
				continue
			}
		}
		tables = append(tables, "["+name+"]")
	}
	return tables, nil
}
