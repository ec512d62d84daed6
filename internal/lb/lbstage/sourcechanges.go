// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"fmt"
	"reflect"
	"slices"

	"culvert/internal/lb"
	"culvert/internal/stage"
)

// configured returns VIPs without the backends that come from sources, which come and go by themselves.
func configured(vips []lb.VIP) (all []lb.VIP) {
	for _, v := range vips {
		v.Backends = slices.DeleteFunc(slices.Clone(v.Backends), func(b lb.Backend) bool { return b.Offered != "" })
		all = append(all, v)
	}
	return all
}

// sourceChanges adds lines for the sources of backends.
func sourceChanges(c *stage.Changes, was, is []sourceSpec) {
	name := func(s sourceSpec) string { return fmt.Sprintf("%s: source %s", s.vip, s.name) }
	stage.Named(c, "VIP", was, is, name, func(c *stage.Changes, name string, was, is sourceSpec) {
		c.Value(name+": kind", was.kind, is.kind)
		if was.kind == is.kind && !reflect.DeepEqual(was.source, is.source) {
			c.Add("%s changed", name)
		}
		c.Value(name+": keep", fmt.Sprint(was.rules.Keep, "%"), fmt.Sprint(is.rules.Keep, "%"))
		c.Value(name+": keep_for", was.rules.KeepFor, is.rules.KeepFor)
		c.Value(name+": damp", was.rules.Damp, is.rules.Damp)
		c.Value(name+": drain", was.rules.Drain, is.rules.Drain)
	})
}
