// SPDX-License-Identifier: Apache-2.0

package events

import "strings"

// kind is the kind of the messages that begin with a text.
type kind struct{ text, kind string }

// kinds has the messages that are events of a kind of their own. A test looks for them in the sources.
var kinds = []kind{
	{"configuration reloaded", "reload"},
	{"the configuration was not reloaded", "reload-refused"},
	{"the configuration is kept", "reload-kept"},
	{"nobody has kept the configuration in time", "reload-undone"},
	{"changed by hand", "change"},
	{"attached", "attached"},
	{"Fast path attached", "attached"},
	{"attached to the interface", "attached"},
	{"the program was taken off the interface", "detached"},
	{"the interface is there again", "interface-up"},
	{"the interface is up", "interface-up"},
	{"the interface is down", "interface-down"},
	{"the interface has no carrier", "interface-down"},
	{"a stage is out", "stage-down"},
	{"a stage is ready", "stage-up"},
	{"a table of a stage is too small", "limit"},
	{"packets are limited", "limit"},
	{"packets are not limited any more", "limit-end"},
	{"packets are lost", "losses"},
	{"no more packets are lost", "losses-end"},
	{"backend is up", "backend-up"},
	{"backend is down", "backend-down"},
	{"no backend takes new flows", "vip-down"},
	{"source of backends is well again", "source-ok"},
	{"source of backends", "source-trouble"},
	{"backends of a source cannot be had", "source-trouble"},
	{"a source has changed backends", "source-change"},
	{"BGP session established", "bgp-up"},
	{"BGP session lost", "bgp-down"},
	{"BGP session", "bgp-down"},
	{"Link up by BFD", "bfd-up"},
	{"Link down by BFD", "bfd-down"},
	{"Fast path key", "key"},
	{"Forwarding key", "key"},
	{"No forwarding key is valid", "key"},
	{"a program captures", "capture"},
	{"the process ends, and the data plane stays", "process-end"},
	{"the process does not work as it should", "process-stuck"},
	{"all loops of the process turn again", "process-turns"},
}

// kindOf returns the kind of a message: that of the longest text with which it begins.
func kindOf(message string) string {
	found, longest := KindLog, 0
	for _, k := range kinds {
		if len(k.text) > longest && strings.HasPrefix(message, k.text) {
			found, longest = k.kind, len(k.text)
		}
	}
	return found
}

// Kinds returns the kinds of events, in the order of the documentation.
func Kinds() []string {
	var all []string
	seen := make(map[string]bool)
	for _, k := range kinds {
		if !seen[k.kind] {
			all = append(all, k.kind)
		}
		seen[k.kind] = true
	}
	return append(all, KindLog, KindLost)
}
