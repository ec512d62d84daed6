// SPDX-License-Identifier: Apache-2.0

package report

import "fmt"

func ptr[T any](v T) *T { return &v }

var testMachine = Machine{Kernel: "6.12.0", CPU: "Test CPU", CPUs: 2, Load: "0.10", Pinned: 1}

// vethSample has two variants, eight rows of which one is invalid, and a note that two rows share.
func vethSample() *Report {
	r := &Report{Scenario: "veth", Machine: testMachine, Ratios: map[string]float64{}}
	rates := []struct {
		name string
		mpps float64
	}{
		{"direct", 5.7}, {"bridge", 0.742}, {"redirect", 3.883}, {"culvert-nomac", 2.1}, {"culvert-cold", 1.439},
		{"culvert-warm", 2.046}, {"reference", 0.122}, {"culvert+reference", 1.2},
	}
	for _, v := range []struct {
		suffix string
		size   int
		factor float64
	}{{"", 138, 1}, {"@512", 512, 0.8}} {
		for _, rate := range rates {
			m := rate.mpps * v.factor
			row := Row{
				Name: rate.name + v.suffix, FrameSize: v.size, Mpps: &Spread{m, m * 0.93, m * 1.05}, Offered: &Spread{m, m, m},
				NsPerPacket: ptr(Spread{1000 / m, 950 / m, 1070 / m}), Sent: 1000, Received: 1000, Valid: true,
			}
			r.Rows = append(r.Rows, row)
			for _, base := range []string{"redirect", "bridge"} {
				if base != rate.name {
					for _, b := range rates {
						if b.name == base {
							r.Ratios[row.Name+"/"+base+v.suffix] = rate.mpps / b.mpps
						}
					}
				}
			}
		}
	}
	reference, reference512, behindCulvert := r.row("reference"), r.row("reference@512"), r.row("culvert+reference")
	reference.Note, reference512.Note = "generator on CPU 0", "generator on CPU 0"
	reference.Lost = map[string]uint64{"queue": 500}
	behindCulvert.Valid, behindCulvert.Note = false, "7 packets not accounted for"
	return r
}

func costSample() *Report {
	r := &Report{Scenario: "cost", Machine: testMachine}
	r.Rows = append(r.Rows,
		Row{Name: "redirect", NsPerPacket: &Spread{3.5, -22, 23}, Best: ptr(1.2), Frames: 32768, Valid: true},
		Row{Name: "culvert-nomac", NsPerPacket: &Spread{197.5, 74.6, 237.1}, Best: ptr(89.4), Frames: 32768, Valid: true},
		Row{Name: "culvert-cold", NsPerPacket: &Spread{411.9, 177.3, 488.7}, Best: ptr(184.6), Frames: 32768, Valid: true})
	return r
}

func instructionSample() *Report {
	r := &Report{Scenario: "insn", Machine: testMachine}
	for i, name := range []string{"redirect", "bridge", "culvert-cold", "culvert-warm"} {
		r.Rows = append(r.Rows, Row{Name: name, Instructions: ptr(400 + 700.5*float64(i)), Valid: true})
	}
	return r
}

func workersSample() *Report {
	r := &Report{Scenario: "workers", Machine: testMachine, Ratios: map[string]float64{}}
	for n := range 3 {
		for _, kind := range []string{"culvert-cold", "round-robin"} {
			m := 1.4 + 0.9*float64(n)
			order := Order{Packets: 1e6}
			if kind == "round-robin" {
				m, order.Reordered = 1.4-0.4*float64(n), 1234*uint64(n)
			}
			name := fmt.Sprintf("%s@workers%d", kind, n)
			r.Rows = append(r.Rows, Row{
				Name: name, FrameSize: 138, Workers: ptr(n), Mpps: &Spread{m, m * 0.9, m * 1.1},
				NsPerPacket: &Spread{1000 / m, 900 / m, 1100 / m}, Order: &order, Valid: true,
				Use: map[int]Spread{0: {0.99, 0.9, 1}, 1: {0.4 * float64(n), 0.4 * float64(n), 0.4 * float64(n)}},
			})
			if len(r.Rows) > 1 {
				r.Ratios[name+"/culvert-cold@workers0"] = m / 1.4
			}
		}
	}
	return r
}

func ndrSample() *Report {
	r := &Report{Scenario: "ndr", Machine: testMachine}
	for _, size := range []int{0, 1518, 64, 128, 256, 512, 1024, 1280} {
		for j, name := range []string{"bridge", "redirect", "culvert-cold", "reference"} {
			variant := fmt.Sprintf("@%d", size)
			if size == 0 {
				variant = "@imix"
			}
			m := (0.7 + float64(j%3)) * (1 - float64(size)/3000)
			r.Rows = append(r.Rows, Row{
				Name: name + variant, FrameSize: size, NDR: &Spread{m, m * 0.97, m * 1.01}, Valid: name+variant != "culvert-cold@128",
			})
		}
	}
	return r
}

func latencySample() *Report {
	r := &Report{Scenario: "latency", Machine: testMachine}
	for j, name := range []string{"direct", "bridge", "redirect", "culvert-cold", "culvert-warm", "reference"} {
		row := Row{Name: name, FrameSize: 138, Valid: name != "bridge"}
		for _, load := range []float64{0.1, 0.5, 0.9} {
			base := 3000 * float64(j+1) * (1 + load)
			l := Latency{
				Load: load, Offered: load * 2, Packets: 100000, P50: base, P90: base * 1.5, P99: base * 4, P999: base * 30,
				Max: base * 200,
			}
			if j%2 == 0 {
				for _, share := range []float64{0.1, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 1} {
					l.Curve = append(l.Curve, Point{share, base * (1 + 0.02/(1.0005-share))})
				}
			}
			row.Latency = append(row.Latency, l)
		}
		r.Rows = append(r.Rows, row)
	}
	return r
}

// floodSample has three filters during four floods, one of them invalid.
func floodSample() *Report {
	r := &Report{Scenario: "filter", Machine: testMachine}
	for j, name := range []string{"culvert", "nft-netdev", "iptables-raw"} {
		row := Row{Name: name + "@tcp", FrameSize: 60, Valid: name != "nft-netdev", Filter: &Filter{Rules: 1}}
		for i, rate := range []float64{0, 0.5, 1, 4} {
			left := 1 / (1 + float64(i*j))
			row.Floods = append(row.Floods, Flood{
				Asked: rate, Most: i == 3, Offered: Spread{rate, rate, rate},
				Transactions: Spread{20000 * left, 19000 * left, 21000 * left}, Share: Spread{left, left, left},
			})
		}
		r.Rows = append(r.Rows, row)
	}
	return r
}
