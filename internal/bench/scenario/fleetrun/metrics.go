// SPDX-License-Identifier: Apache-2.0

package fleetrun

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// etcd's metrics that are looked at. With labels their values are added up.
const (
	metricCommits  = "etcd_server_proposals_committed_total"
	metricWAL      = "etcd_disk_wal_write_bytes_total"
	metricMemory   = "process_resident_memory_bytes"
	metricCPU      = "process_cpu_seconds_total"
	metricDatabase = "etcd_mvcc_db_total_size_in_use_in_bytes"
)

var metrics = []string{
	metricCommits, metricWAL, metricMemory, metricCPU, metricDatabase,
}

// sample is what members and this process have counted so far.
type sample struct {
	at time.Time
	// members has the metrics of each member.
	members []map[string]float64
	// own is the CPU time of this process: nodes and operator.
	own time.Duration
	exchanged
}

// sample asks all members.
func (b *bed) sample(ctx context.Context) (*sample, error) {
	s := &sample{at: time.Now(), exchanged: b.traffic.now()}
	for _, m := range b.members {
		values, err := b.scrape(ctx, m)
		if err != nil {
			return nil, err
		}
		s.members = append(s.members, values)
	}
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return nil, fmt.Errorf("read the CPU time of this process: %w", err)
	}
	s.own = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	return s, nil
}

// sum adds up a metric of all members.
func (s *sample) sum(metric string) (n float64) {
	for _, m := range s.members {
		n += m[metric]
	}
	return n
}

// most is the highest of a metric of all members.
func (s *sample) most(metric string) (n float64) {
	for _, m := range s.members {
		n = max(n, m[metric])
	}
	return n
}

// since is how much a metric of all members has grown, a second.
func (s *sample) since(before *sample, metric string) float64 {
	return (s.sum(metric) - before.sum(metric)) / s.at.Sub(before.at).Seconds()
}

// scrape reads the metrics of a member.
func (b *bed) scrape(ctx context.Context, m *member) (map[string]float64, error) {
	const within = 30 * time.Second // etcd's own work comes first on a machine that is busy
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://%s:%d/metrics", m.address, clientPort), http.NoBody)
	if err != nil {
		return nil, err
	}
	r, err := b.http.Do(q)
	if err != nil {
		return nil, fmt.Errorf("read the metrics of member %s: %w", m.name, err)
	}
	defer r.Body.Close()
	values := make(map[string]float64)
	for lines := bufio.NewScanner(r.Body); ; {
		if !lines.Scan() {
			return values, lines.Err()
		}
		name, value, _ := strings.Cut(lines.Text(), " ")
		if at := strings.LastIndexByte(lines.Text(), ' '); at > 0 {
			value = lines.Text()[at+1:]
		}
		name, _, _ = strings.Cut(name, "{")
		if !slices.Contains(metrics, name) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("member %s: metric %s is %q", m.name, name, value)
		}
		values[name] += n
	}
}

// memory is what this process uses, in bytes, once what is not needed is gone.
func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// usage adds what was used between two samples.
func (r *rounds) usage(before, after *sample) {
	took := after.at.Sub(before.at).Seconds()
	r.add("requests to etcd", perS, (after.requests-before.requests)/took)
	r.add("writes", perS, (after.most(metricCommits)-before.most(metricCommits))/took)
	r.add("log of a member", bytesPer, after.since(before, metricWAL)/memberCount/1000)
	r.add("sent by nodes", bytesPer, (after.sent-before.sent)/took/1000)
	r.add("received by nodes", bytesPer, (after.received-before.received)/took/1000)
	r.add("CPUs of etcd", count, after.since(before, metricCPU))
	r.add("CPUs of nodes", count, (after.own-before.own).Seconds()/took)
}
