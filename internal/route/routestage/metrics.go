// SPDX-License-Identifier: Apache-2.0

package routestage

import (
	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/datapath"
	"culvert/internal/route"
	"culvert/internal/route/routeplane"
	"culvert/internal/stats"
)

var (
	family     = []string{"family"}
	routesDesc = prometheus.NewDesc("culvert_route_routes",
		"Routes of the kernel's tables local, main and default that the mirror follows.", family, nil)
	stateDesc = prometheus.NewDesc("culvert_route_mirror_state",
		"1 for the state of the mirror, 0 for the others: current; else why the programs ask the kernel.", []string{"family", "state"}, nil)
	ageDesc = prometheus.NewDesc("culvert_route_mirror_age_seconds",
		"For how long the mirror has not been known to equal the kernel's tables; left out if it never was.", family, nil)
	blocksDesc = prometheus.NewDesc("culvert_route_mirror_blocks_used",
		"Blocks of the mirror that are in use.", family, nil)
	blocksLimitDesc = prometheus.NewDesc("culvert_route_mirror_blocks_limit",
		"Blocks that the mirror has: blocks4 and blocks6 of the configuration.", family, nil)
	lostDesc = prometheus.NewDesc("culvert_route_mirror_lost_entries",
		"Entries of the mirror for which no block was free. The programs ask the kernel for their addresses.", family, nil)
	kernelDesc = prometheus.NewDesc("culvert_route_left_to_kernel",
		"1 if the kernel forwards all packets of the family, because the fast path does not honor a setting of the host, else 0.", family, nil)
	bytesDesc = prometheus.NewDesc("culvert_route_mirror_bytes", "Memory of the mirror of both families.", nil, nil)
	hopsDesc  = prometheus.NewDesc("culvert_route_next_hops", "Next hops in use.", nil, nil)
	hopsLimit = prometheus.NewDesc("culvert_route_next_hops_limit", "Next hops that there is room for.", nil, nil)
	neighDesc = prometheus.NewDesc("culvert_route_neighbors",
		"Neighbors on connected networks that the programs send to.", nil, nil)
	neighLimit = prometheus.NewDesc("culvert_route_neighbors_limit", "Neighbors that there is room for.", nil, nil)
	dumpsDesc  = prometheus.NewDesc("culvert_route_table_reads_total",
		"How often the kernel's tables were read from beginning to end.", nil, nil)
	dumpTimeDesc = prometheus.NewDesc("culvert_route_table_read_duration_seconds",
		"How long the latest reading of the kernel's tables took.", nil, nil)
	overrunsDesc = prometheus.NewDesc("culvert_route_notification_overruns_total",
		"How often the kernel had more notifications of changes than the socket had room for, so that the tables were read anew.", nil, nil)
)

// part is the IP router's part with the state of the process that keeps the mirror.
type part struct {
	*routeplane.Part
	status route.Status
}

// statusOf returns what the process that has loaded an instance shows in its metrics, nil for a part without.
func statusOf(inst *datapath.Instance) *route.Status {
	if p := datapath.PartOf[*part](inst); p != nil {
		return &p.status
	}
	return nil
}

// Collectors implements datapath.Metered.
func (p *part) Collectors(inst *datapath.Instance) []prometheus.Collector {
	return []prometheus.Collector{collector{inst, &p.status}}
}

type collector struct {
	inst   *datapath.Instance
	status *route.Status
}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		routesDesc, stateDesc, ageDesc, blocksDesc, blocksLimitDesc, lostDesc, kernelDesc, bytesDesc, hopsDesc, hopsLimit, neighDesc,
		neighLimit, dumpsDesc, dumpTimeDesc, overrunsDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	state, err := routeplane.ReadState(c.inst)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(kernelDesc, err)
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counter := func(d *prometheus.Desc, value uint64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value))
	}
	s := c.status.Load()
	for _, f := range []struct {
		name   string
		stats  route.FamilyStats
		kernel bool
	}{{"ipv4", s.IPv4, state.Policy.Kernel4}, {"ipv6", s.IPv6, state.Policy.Kernel6}} {
		gauge(routesDesc, float64(f.stats.Routes), f.name)
		stats.SendState(ch, stateDesc, f.stats.State(), route.MirrorStates(), f.name)
		if age, known := f.stats.Age(); known {
			gauge(ageDesc, age.Seconds(), f.name)
		}
		gauge(blocksDesc, float64(f.stats.BlocksUsed), f.name)
		gauge(blocksLimitDesc, float64(f.stats.BlocksTotal), f.name)
		gauge(lostDesc, float64(f.stats.Lost), f.name)
		gauge(kernelDesc, float64(stats.OneIf(f.kernel)), f.name)
	}
	gauge(bytesDesc, float64(routeplane.Memory(c.inst)))
	gauge(hopsDesc, float64(s.HopsUsed))
	gauge(hopsLimit, routeplane.MaxHops-routeplane.HopFirst)
	gauge(neighDesc, float64(s.Neighbors))
	gauge(neighLimit, routeplane.MaxNeighbors)
	counter(dumpsDesc, s.Dumps)
	gauge(dumpTimeDesc, s.DumpTook.Seconds())
	counter(overrunsDesc, s.Overruns)
}
