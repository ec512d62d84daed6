// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/scionproto/scion/pkg/addr"
	scionrouter "github.com/scionproto/scion/router"

	"culvert/internal/stats"
)

// FastPathCounters returns the fast path's counters, with one entry for each of scionplane.Config.Links.
type FastPathCounters = stats.LinkSource

// trafficTypes are the values of the reference's label "type", with the index of stats.LinkCounters.Out.
var trafficTypes = [stats.TrafficTypes]string{
	stats.TrafficOther:      "other",
	stats.TrafficIn:         "in",
	stats.TrafficOut:        "out",
	stats.TrafficInTransit:  "in_transit",
	stats.TrafficOutTransit: "out_transit",
	stats.TrafficBRTransit:  "br_transit",
}

// counterSync adds the fast path's counters to the reference router's own metrics. Those start from zero with the
// process, so the counts of an adopted fast path before that are left out and no rate jumps at a restart.
type counterSync struct {
	mu     sync.Mutex
	source FastPathCounters
	last   []stats.LinkCounters
	links  []linkMetrics
}

// linkMetrics holds the reference's counters of one link.
type linkMetrics struct {
	inPackets, inBytes, processed [stats.SizeClasses]prometheus.Counter
	dropped, limited              [stats.SizeClasses]prometheus.Counter
	outPackets, outBytes          [stats.TrafficTypes][stats.SizeClasses]prometheus.Counter
}

// newCounterSync makes a counterSync that begins now or, for links in before, with the counts by their names there.
func newCounterSync(r *Router, m *scionrouter.Metrics, source FastPathCounters, before map[string]stats.LinkCounters) (*counterSync, error) {
	start, err := source.LinkCounters()
	if err != nil {
		return nil, fmt.Errorf("reading the fast path's counters: %w", err)
	}
	if len(start) != len(r.Datapath.Links) {
		return nil, fmt.Errorf("the fast path counts %d links, the configuration has %d", len(start), len(r.Datapath.Links))
	}
	s := &counterSync{source: source, last: start}
	for i, l := range r.Datapath.Links {
		s.links = append(s.links, newLinkMetrics(m, r.linkLabels(i)))
		if counts, ok := before[l.Name]; ok {
			s.last[i] = counts
		}
	}
	return s, nil
}

// counted returns the counts that are in the metrics, by the links' names.
func (s *counterSync) counted(r *Router) map[string]stats.LinkCounters {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make(map[string]stats.LinkCounters)
	for i, l := range r.Datapath.Links {
		counts[l.Name] = s.last[i]
	}
	return counts
}

// linkLabels returns the labels that the reference puts on a link's metrics.
func (r *Router) linkLabels(link int) prometheus.Labels {
	l := r.Datapath.Links[link]
	local := addr.IA(r.Datapath.LocalIA).String()
	neighbor := "unknown"
	switch {
	case l.NeighborIA != 0:
		neighbor = addr.IA(l.NeighborIA).String()
	case link == 0:
		neighbor = local
	}
	return prometheus.Labels{"interface": l.Name, "isd_as": local, "neighbor_isd_as": neighbor}
}

func newLinkMetrics(m *scionrouter.Metrics, labels prometheus.Labels) linkMetrics {
	var l linkMetrics
	for class := range stats.SizeClasses {
		size := prometheus.Labels{"sizeclass": sizeLabel(class)}
		of := func(v *prometheus.CounterVec) *prometheus.CounterVec {
			return v.MustCurryWith(labels).MustCurryWith(size)
		}
		l.inPackets[class] = of(m.InputPacketsTotal).With(nil)
		l.inBytes[class] = of(m.InputBytesTotal).With(nil)
		l.processed[class] = of(m.ProcessedPackets).With(nil)
		l.dropped[class] = of(m.DroppedPacketsTotal).With(prometheus.Labels{"reason": "invalid"})
		l.limited[class] = of(m.DroppedPacketsTotal).With(prometheus.Labels{"reason": "busy_slow_path"})
		for t, name := range trafficTypes {
			l.outPackets[t][class] = of(m.OutputPacketsTotal).With(prometheus.Labels{"type": name})
			l.outBytes[t][class] = of(m.OutputBytesTotal).With(prometheus.Labels{"type": name})
		}
	}
	return l
}

// sizeLabel returns the reference's name of a size class: the smallest and the largest size in it, in bytes.
func sizeLabel(class int) string {
	low, high := 1<<(class+5), 1<<(class+6)-1
	if class == 0 {
		low = 0
	}
	return strconv.Itoa(low) + "_" + strconv.Itoa(high)
}

// sync brings the metrics up to date.
func (s *counterSync) sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.source.LinkCounters()
	if err != nil {
		return fmt.Errorf("reading the fast path's counters: %w", err)
	}
	if len(now) != len(s.last) {
		return fmt.Errorf("reading the fast path's counters: %d links, expected %d", len(now), len(s.last))
	}
	for i := range now {
		s.links[i].add(&now[i], &s.last[i])
	}
	s.last = now
	return nil
}

func (l *linkMetrics) add(now, last *stats.LinkCounters) {
	for class := range stats.SizeClasses {
		in := since(now.In[class].Packets, last.In[class].Packets)
		l.inPackets[class].Add(in)
		l.processed[class].Add(in)
		l.inBytes[class].Add(since(now.In[class].Bytes, last.In[class].Bytes))
		l.dropped[class].Add(since(now.Dropped[class], last.Dropped[class]))
		l.limited[class].Add(since(now.Limited[class], last.Limited[class]))
		for t := range stats.TrafficTypes {
			l.outPackets[t][class].Add(since(now.Out[t][class].Packets, last.Out[t][class].Packets))
			l.outBytes[t][class].Add(since(now.Out[t][class].Bytes, last.Out[t][class].Bytes))
		}
	}
}

// since returns the growth of a counter. A counter that is lower than before was created anew and started from zero.
func since(now, last uint64) float64 {
	if now < last {
		return float64(now)
	}
	return float64(now - last)
}
