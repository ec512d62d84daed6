// SPDX-License-Identifier: Apache-2.0

package route

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/route/routeplane"
)

// realPrefixes reads a full table of the Internet, which is part of the tests of package bart.
func realPrefixes(b *testing.B) (list []netip.Prefix) {
	b.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/gaissmai/bart").Output()
	check(b, err)
	file, err := os.Open(filepath.Join(strings.TrimSpace(string(dir)), "internal", "tests", "testdata", "prefixes.txt.gz"))
	check(b, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	check(b, err)
	for lines := bufio.NewScanner(unzipped); lines.Scan(); {
		p, err := netip.ParsePrefix(lines.Text())
		check(b, err)
		list = append(list, p)
	}
	return list
}

// BenchmarkFullTable reads a full table of the Internet into the mirror, then follows the removal of all
// of IPv6 and its return.
func BenchmarkFullTable(b *testing.B) {
	list := realPrefixes(b)
	plane := newFakePlane(routeplane.DefaultBlocks4, routeplane.DefaultBlocks6)
	plane.root4 = make([]uint32, 1<<24)
	bed := newBed(b, plane)
	var add, remove, again strings.Builder
	some := []netip.Addr{}
	counts := [2]int{}
	for i, p := range list {
		dev, host := i%2, 2+i/7%8
		if p.Addr().Is4() {
			fmt.Fprintf(&add, "route add %s via 10.9.%d.%d\n", p, dev, host)
			counts[0]++
		} else {
			line := fmt.Sprintf("route add %s via fd09:%d::%d\n", p, dev, host)
			add.WriteString(line)
			again.WriteString(line)
			fmt.Fprintf(&remove, "route del %s\n", p)
			counts[1]++
		}
		if i%50 == 0 {
			some = append(some, p.Addr().Next())
		}
	}
	began := time.Now()
	_, _ = runIP(add.String(), "-force")
	b.Logf("%d and %d prefixes are in the kernel after %v", counts[0], counts[1], time.Since(began))
	add.Reset()
	list = nil
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	outside := memory.HeapAlloc
	for b.Loop() {
		cpu, began := cpuTime(), time.Now()
		bed.begin(Options{})
		bed.barrier()
		took, used := time.Since(began), cpuTime()-cpu
		s := bed.status.Load()
		b.ReportMetric(took.Seconds(), "s/read")
		b.ReportMetric(used.Seconds(), "cpu-s/read")
		b.Logf("read in %v with %v of CPU: %+v", took, used, s)
		bed.compare(some, never)
		runtime.GC()
		runtime.ReadMemStats(&memory)
		// The memory of the fake plane and of this test's lists does not count.
		b.ReportMetric(float64(memory.HeapAlloc-outside)/(1<<20), "MiB")

		for _, step := range [][2]string{{"removing", remove.String()}, {"adding", again.String()}} {
			what, batch := step[0], step[1]
			cpu, began = cpuTime(), time.Now()
			_, _ = runIP(batch, "-force")
			kernel := time.Since(began)
			bed.barrier()
			b.Logf("%s %d prefixes of IPv6 took ip(8) %v and the mirror %v more, with %v of CPU: %+v", what, counts[1], kernel,
				time.Since(began)-kernel, cpuTime()-cpu, bed.status.Load())
		}
		bed.compare(some, never)
		bed.stop()
	}
}

// cpuTime is what this process has used.
func cpuTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
