// SPDX-License-Identifier: Apache-2.0

package main

import (
	"culvert/internal/lb"
)

// vlanFlag is a list of VLANs: "100,200", or "none".
type vlanFlag struct{ ids *[]uint16 }

func (f *vlanFlag) String() string {
	if f.ids == nil {
		return ""
	}
	return lb.VLANWords(*f.ids)
}

func (f *vlanFlag) Type() string { return "list" }

func (f *vlanFlag) Set(text string) (err error) {
	*f.ids, err = lb.ParseVLANs(text)
	return err
}
