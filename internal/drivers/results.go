// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Row is something that is tried with each driver.
type Row struct {
	// Name is short, for results and tests. Text is what the table says.
	Name, Text string
}

// Rows are in the order of the table.
var Rows = []Row{
	{"mode", "mode of XDP"},
	{"forwarded", "IP router: forwarded"},
	{"punted", "IP router: left to the kernel, which answers (TTL)"},
	{"dropped", "filter: dropped"},
	{"changed", "load balancer: encapsulated and forwarded"},
	{"scion", "SCION router: forwarded"},
	{"back", "sent back by the card that it came in by"},
	{"native-between", "redirected to cards of all other drivers, native mode"},
	{"generic-between", "redirected to cards of all other drivers, generic mode"},
	{"tags", "VLAN tag in the frame"},
	{"rxvlan", "VLAN tag taken off by the card (`rxvlan on`)"},
	{"merging", "LRO or hardware GRO on"},
	{"adopt", "attached again under traffic, no packet lost"},
	{"detach", "detached, the kernel goes on"},
	{"queues", "number of queues changed while attached"},
	{"mtu", "MTU made smaller: the kernel answers"},
	{"mtu-all", "IPv4 with and without DF, IPv6, longer than the way out takes: as the kernel alone"},
	{"ipv6", "IPv6: forwarded; hop limits and extension headers as the kernel alone"},
	{"lb-mtu", "load balancer: a smaller MTU towards the backend, and the client is told"},
	{"jumbo", "MTU 9000, several buffers"},
	{"jumbo6", "MTU 9000, several buffers, IPv6"},
	{"jumbo-mtu", "from MTU 9000 to MTU 1500, several buffers: as the kernel alone"},
	{"syn", "filter: SYNs answered with cookies, and a client connects"},
	{"checksum", "checksums that a sender's card leaves to the receiver: finished where packets leave"},
	{"checksum-generic", "the same in generic mode"},
	{"carrier", "cable unplugged under traffic: the others go on"},
	{"down", "link down and up"},
	{"gone", "card removed and added again"},
}

// Kernel has the results on one kernel, by driver and row. docs/drivers.md explains the words.
type Kernel struct {
	Line    string                       `json:"line"`
	Drivers map[string]map[string]string `json:"drivers"`
}

// All are the results on all kernels.
type All []Kernel

//go:embed results.json
var resultsJSON []byte

// Results returns the results that docs/drivers.md shows.
func Results() (all All, err error) {
	if err := json.Unmarshal(resultsJSON, &all); err != nil {
		return nil, fmt.Errorf("results.json: %w", err)
	}
	return all, nil
}

// Of returns an outcome, "" if there is none.
func (a All) Of(line, driver, row string) string {
	for _, k := range a {
		if k.Line == line {
			return k.Drivers[driver][row]
		}
	}
	return ""
}

// Table returns the table of the page, in Markdown: a column for each driver. What differs between kernels has the outcome on each.
func (a All) Table() string {
	var names []string
	for _, k := range a {
		for name := range k.Drivers {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	var b strings.Builder
	fmt.Fprintf(&b, "| what |%s\n|---|%s\n", columns(names, func(n string) string { return "`" + n + "`" }), strings.Repeat("---|", len(names)))
	for _, row := range Rows {
		fmt.Fprintf(&b, "| %s |%s\n", row.Text, columns(names, func(n string) string { return a.cell(n, row.Name) }))
	}
	return b.String()
}

func columns(names []string, text func(string) string) string {
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, " %s |", text(n))
	}
	return b.String()
}

// cell is the outcome of a row, or those of all kernels if they differ.
func (a All) cell(driver, row string) string {
	var each []string
	same := true
	for _, k := range a {
		o := k.Drivers[driver][row]
		if o == "" {
			o = "–"
		}
		same = same && (len(each) == 0 || strings.HasSuffix(each[0], ": "+o))
		each = append(each, k.Line+": "+o)
	}
	if same && len(each) > 0 {
		_, o, _ := strings.Cut(each[0], ": ")
		return o
	}
	return strings.Join(each, ", ")
}
