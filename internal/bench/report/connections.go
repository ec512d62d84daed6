// SPDX-License-Identifier: Apache-2.0

package report

import "fmt"

// Connections is what clients got of a service over TCP.
type Connections struct {
	// Rate is how many connections a second were made, used for a request and closed, with so many clients at a time.
	Rate    Spread `json:"connections_per_second"`
	Clients int    `json:"clients"`
	// Speed is what clients read of long pages, in thousand millions of bits a second, with so many streams at a time.
	Speed   Spread `json:"gbit_per_second"`
	Streams int    `json:"streams"`
}

func hasConnections(row Row) bool { return row.Connections != nil }

// connectionsColumns are those of a table of rows that have connections.
func (r *Report) connectionsColumns(rows []Row) []column {
	name := column{head: "row", left: true}
	cells := []struct {
		head string
		cell func(row Row) string
	}{
		{"connections/s", func(row Row) string { return fmt.Sprintf("%.0f", row.Connections.Rate.Median) }},
		{"min", func(row Row) string { return fmt.Sprintf("%.0f", row.Connections.Rate.Min) }},
		{"max", func(row Row) string { return fmt.Sprintf("%.0f", row.Connections.Rate.Max) }},
		{"Gbit/s", func(row Row) string { return fmt.Sprintf("%.2f", row.Connections.Speed.Median) }},
		{"min", func(row Row) string { return fmt.Sprintf("%.2f", row.Connections.Speed.Min) }},
		{"max", func(row Row) string { return fmt.Sprintf("%.2f", row.Connections.Speed.Max) }},
	}
	for _, row := range rows {
		name.add(row.label())
	}
	all := []column{name}
	for _, of := range cells {
		c := column{head: of.head}
		for _, row := range rows {
			c.add(of.cell(row))
		}
		all = append(all, c)
	}
	for _, base := range r.bases(group{rows: rows}) {
		c := column{head: "x " + base}
		for _, row := range rows {
			c.add(r.ratioCell(row.Name, base))
		}
		all = append(all, c)
	}
	return all
}
