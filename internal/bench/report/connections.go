// SPDX-License-Identifier: Apache-2.0

package report

import "fmt"

// Connections are the measurements of TCP connections to a service.
type Connections struct {
	// Rate is the number of short connections a second, each with one request. Clients is the number of clients that make them at
	// the same time.
	Rate    Spread `json:"connections_per_second"`
	Clients int    `json:"clients"`
	// Speed is the rate at which clients read long pages, in Gbit/s. Streams is the number of pages read at the same time.
	Speed   Spread `json:"gbit_per_second"`
	Streams int    `json:"streams"`
}

func hasConnections(row Row) bool { return row.Connections != nil }

// connectionsColumns are the columns of the table of rows with connections.
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
	for _, spec := range cells {
		c := column{head: spec.head}
		for _, row := range rows {
			c.add(spec.cell(row))
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
