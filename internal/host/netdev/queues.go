// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"culvert/internal/host/cpus"
)

// Queues are the receive queues of a device, and who serves them. What the driver or the kernel does not tell is left out.
type Queues struct {
	// Receive is how many there are, Most how many the device can have.
	Receive int `json:"receive"`
	Most    int `json:"most,omitempty"`
	// RSS has the share of the hashes that each queue gets by the indirection table, in percent. The index is the queue.
	RSS []float64 `json:"rss_percent,omitempty"`
	// Interrupts are those of the receive queues, by number.
	Interrupts []Interrupt `json:"interrupts,omitempty"`
	// Packets has what each of several queues has got since the device is there, or as the driver counts. The index is the queue.
	Packets []uint64 `json:"packets,omitempty"`
}

// Interrupt is an interrupt of a receive queue.
type Interrupt struct {
	IRQ int `json:"irq"`
	// Name is what /proc/interrupts calls it.
	Name string `json:"name"`
	// CPUs serve it: those that the kernel has taken of the ones that it may take.
	CPUs []int `json:"cpus"`
}

// ReadQueues reads the receive queues of a device in the calling thread's network namespace, nil if the driver does not report any.
func ReadQueues(device string) *Queues {
	channels := ReadChannels(device)
	if channels.RX == 0 {
		return nil
	}
	q := &Queues{Receive: channels.RX, Most: channels.RXMax}
	if table, err := indirection(device); err == nil {
		q.RSS = shares(table, channels.RX)
	}
	q.Interrupts = used(interrupts(device, "/"), channels.RX)
	q.Packets = byQueue(QueuePackets(device), channels.RX)
	return q
}

// byQueue lists what each of n queues has got, nil if there is one, or nothing is known.
func byQueue(packets map[int]uint64, n int) []uint64 {
	if n < 2 || packets == nil {
		return nil
	}
	all := make([]uint64, n)
	for queue, got := range packets {
		if queue < n {
			all[queue] = got
		}
	}
	return all
}

// shares returns the share of an indirection table that each of n queues has, in percent.
func shares(table []uint32, n int) []float64 {
	if len(table) == 0 {
		return nil
	}
	all := make([]float64, n)
	for _, queue := range table {
		if int(queue) < n {
			all[queue] += 100 / float64(len(table))
		}
	}
	return all
}

// indirection reads the table by which the card spreads hashes over queues: each entry is a queue.
func indirection(device string) ([]uint32, error) {
	if len(device) >= unix.IFNAMSIZ {
		return nil, unix.ENAMETOOLONG
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	// struct ethtool_rxfh_indir has the command, the size of the table and the table. For a size of 0 the kernel answers with the size.
	ask := make([]byte, 8)
	binary.NativeEndian.PutUint32(ask, unix.ETHTOOL_GRXFHINDIR)
	if err := ethtoolBuffer(fd, device, ask); err != nil {
		return nil, err
	}
	size := binary.NativeEndian.Uint32(ask[4:])
	answer := make([]byte, 8+4*size)
	binary.NativeEndian.PutUint32(answer, unix.ETHTOOL_GRXFHINDIR)
	binary.NativeEndian.PutUint32(answer[4:], size)
	if err := ethtoolBuffer(fd, device, answer); err != nil {
		return nil, err
	}
	table := make([]uint32, size)
	for n := range table {
		table[n] = binary.NativeEndian.Uint32(answer[8+4*n:])
	}
	return table, nil
}

// receives matches the names of interrupts of receive queues, as drivers have them.
var receives = regexp.MustCompile(`(?i)(rx|input|comp\d|ntfy-block)`)

// interrupts returns the interrupts of a device's receive queues. root is the directory that proc and sys are in.
func interrupts(device, root string) (all []Interrupt) {
	bus := busOf(device)
	if bus == "" {
		return nil
	}
	numbers, _ := filepath.Glob(filepath.Join(root, "sys/bus/*/devices", bus, "msi_irqs/*"))
	names := interruptNames(filepath.Join(root, "proc/interrupts"))
	for _, path := range numbers {
		irq, err := strconv.Atoi(filepath.Base(path))
		if name := names[irq]; err == nil && (name == device || receives.MatchString(name)) {
			all = append(all, Interrupt{IRQ: irq, Name: name, CPUs: interruptCPUs(filepath.Join(root, "proc/irq", strconv.Itoa(irq)))})
		}
	}
	slices.SortFunc(all, func(a, b Interrupt) int { return a.IRQ - b.IRQ })
	return all
}

// idleNames matches the names of interrupts that a driver also has for queues which are not in use, with the queue's number.
var idleNames = regexp.MustCompile(`^virtio\d+-input\.(\d+)$`)

// used leaves out the interrupts of queues that are not in use: virtio_net has one for each queue that the device could have.
func used(all []Interrupt, receive int) (in []Interrupt) {
	for _, i := range all {
		if m := idleNames.FindStringSubmatch(i.Name); m != nil {
			if queue, err := strconv.Atoi(m[1]); err != nil || queue >= receive {
				continue
			}
		}
		in = append(in, i)
	}
	return in
}

// busOf returns the name of a device on its bus, such as 0000:00:03.0, "" if the driver has none.
func busOf(device string) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, device)
	if err != nil {
		return ""
	}
	bus := unix.ByteSliceToString(info.Bus_info[:])
	if strings.ContainsAny(bus, "/*?[") {
		return ""
	}
	return bus
}

// interruptNames reads the names of interrupts by number. A line has the number, a count for each CPU, the controller and the name.
func interruptNames(path string) map[int]string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	names := make(map[int]string)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		number, rest, _ := strings.Cut(strings.TrimSpace(lines.Text()), ":")
		fields := strings.Fields(rest)
		if irq, err := strconv.Atoi(number); err == nil && len(fields) > 0 {
			names[irq] = fields[len(fields)-1]
		}
	}
	return names
}

func interruptCPUs(dir string) []int {
	for _, name := range []string{"effective_affinity_list", "smp_affinity_list"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		if list, err := cpus.Parse(strings.TrimSpace(string(text))); err == nil {
			return list
		}
	}
	return nil
}

// queuePackets matches the names of statistics that count what a receive queue has got, as drivers have them. virtio_net, ice, ixgbe, mlx5,
// i40e, bnxt and ena have these, veth the one with xdp.
var queuePackets = regexp.MustCompile(`^(?:rx[-_]?(?:queue[-_]?)?(\d+)[-_.](?:xdp_)?packets|\[(\d+)\]:? rx_ucast_packets|queue_(\d+)_rx_cnt)$`)

// QueuePackets returns how many packets each receive queue of a device has got, by queue, nil if the driver does not tell. The device is in the
// network namespace of the calling thread.
func QueuePackets(device string) map[int]uint64 {
	all, err := EthtoolStats(device)
	if err != nil {
		return nil
	}
	return queuesIn(all)
}

func queuesIn(all map[string]uint64) map[int]uint64 {
	var packets map[int]uint64
	for name, n := range all {
		m := queuePackets.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		queue, err := strconv.Atoi(m[1] + m[2] + m[3])
		if err != nil {
			continue
		}
		if packets == nil {
			packets = make(map[int]uint64)
		}
		packets[queue] += n
	}
	return packets
}

// String says in one line which queues there are and who serves them.
func (q *Queues) String() string {
	text := fmt.Sprintf("%d receive", q.Receive)
	if q.Most > q.Receive {
		text += fmt.Sprintf(" of %d", q.Most)
	}
	text += q.Served()
	var sum uint64
	for _, n := range q.Packets {
		sum += n
	}
	if sum > 0 {
		text += ", packets"
		for _, n := range q.Packets {
			text += fmt.Sprintf(" %.0f", 100*float64(n)/float64(sum))
		}
		text += " %"
	}
	return text
}

// Served says how hashes are spread over the queues, and which CPUs serve them: ", hashes spread 50 50 %, interrupts 24 on CPU 0". It
// is "" if neither is known.
func (q *Queues) Served() (text string) {
	if len(q.RSS) > 1 {
		text += ", hashes spread"
		for _, share := range q.RSS {
			text += fmt.Sprintf(" %.0f", share)
		}
		text += " %"
	}
	if len(q.Interrupts) > 0 {
		text += ", interrupts"
		for _, i := range q.Interrupts {
			text += fmt.Sprintf(" %d on CPU %s", i.IRQ, cpus.Format(i.CPUs))
		}
	}
	return text
}
