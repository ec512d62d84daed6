// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Options of getsockopt, the same for both families (linux/netfilter_ipv4/ip_tables.h).
const (
	soGetInfo    = 64
	soGetEntries = 65

	maxTableName = 32
)

// Verdicts: those of a built-in target are -verdict-1.
const (
	nfDrop   = 0
	nfAccept = 1
)

// legacy is one of the two families of tables that are read by getsockopt.
type legacy struct {
	backend, family string
	domain, level   int
	// names lists the tables that there are: to ask for one that is not listed would make it. It is
	// the thread's, not /proc/net, which belongs to the process.
	names string
	// targetOffset is where struct ipt_entry, or ip6t_entry, has target_offset; next_offset follows.
	targetOffset int
}

var (
	ip4 = legacy{IPTables, "ip", unix.AF_INET, unix.SOL_IP, procNet + "/ip_tables_names", 88}
	ip6 = legacy{IP6Tables, "ip6", unix.AF_INET6, unix.SOL_IPV6, procNet + "/ip6_tables_names", 140}
)

const procNet = "/proc/thread-self/net"

// legacyHooks are those that forwarded packets pass, in the order of a packet.
var legacyHooks = []struct {
	number      int
	hook, chain string
}{
	{unix.NF_INET_PRE_ROUTING, "prerouting", "PREROUTING"},
	{unix.NF_INET_FORWARD, "forward", "FORWARD"},
	{unix.NF_INET_POST_ROUTING, "postrouting", "POSTROUTING"},
}

// tableInfo is struct ipt_getinfo. Offsets are those of entries in the table: a hook's chain goes
// from hookEntry to its policy at underflow.
type tableInfo struct {
	name       [maxTableName]byte
	validHooks uint32
	hookEntry  [unix.NF_INET_NUMHOOKS]uint32
	underflow  [unix.NF_INET_NUMHOOKS]uint32
	numEntries uint32
	size       uint32
}

func (l legacy) find() ([]Finding, error) {
	if _, err := os.Stat(procNet); err != nil {
		return nil, failed("look for the tables of "+l.backend, err)
	}
	list, err := os.ReadFile(l.names)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // no ip_tables in this kernel, or not loaded
	}
	if err != nil {
		return nil, failed("list the tables of "+l.backend, err)
	}
	var found []Finding
	for table := range strings.FieldsSeq(string(list)) {
		more, err := l.table(table)
		if err != nil {
			return nil, failed("read the table "+table+" of "+l.backend, err)
		}
		found = append(found, more...)
	}
	return found, nil
}

func (l legacy) table(name string) ([]Finding, error) {
	fd, err := unix.Socket(l.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return l.settled(name, func() (tableInfo, []byte, error) { return l.read(fd, name) })
}

// settled reads until a table has not changed between its description and its entries.
func (l legacy) settled(name string, read func() (tableInfo, []byte, error)) ([]Finding, error) {
	const attempts = 20
	for range attempts {
		info, entries, err := read()
		switch {
		case errors.Is(err, unix.EAGAIN): // its size has changed meanwhile
			continue
		case errors.Is(err, unix.ENOENT):
			return nil, nil
		case err != nil:
			return nil, err
		}
		return l.chains(name, info, entries)
	}
	return nil, fmt.Errorf("it changed during each of %d attempts: try again when it rests", attempts)
}

// read gets the description of a table, and its entries.
func (l legacy) read(fd int, name string) (info tableInfo, entries []byte, err error) {
	copy(info.name[:len(info.name)-1], name)
	if err := getsockopt(fd, l.level, soGetInfo, unsafe.Pointer(&info), unsafe.Sizeof(info)); err != nil {
		return info, nil, err
	}
	// struct ipt_get_entries: name, size, and entries that are aligned to 8 bytes.
	const sizeAt, header = maxTableName, maxTableName + 8
	b := make([]byte, header+int(info.size))
	copy(b, info.name[:])
	binary.NativeEndian.PutUint32(b[sizeAt:], info.size)
	err = getsockopt(fd, l.level, soGetEntries, unsafe.Pointer(&b[0]), uintptr(len(b)))
	return info, b[header:], err
}

// chains looks at those built-in chains of a table that forwarded packets pass.
func (l legacy) chains(name string, info tableInfo, entries []byte) ([]Finding, error) {
	var found []Finding
	for _, h := range legacyHooks {
		if info.validHooks&(1<<h.number) == 0 {
			continue
		}
		f := Finding{Backend: l.backend, Family: l.family, Table: name, Chain: h.chain, Hook: h.hook, Policy: drop}
		at, end := int(info.hookEntry[h.number]), int(info.underflow[h.number])
		for at < end {
			_, next, err := l.entry(entries, at)
			if err != nil {
				return nil, err
			}
			f.Rules++
			at = next
		}
		target, next, err := l.entry(entries, end)
		if err != nil || at != end {
			return nil, fmt.Errorf("chain %s is not laid out as expected", h.chain)
		}
		// The policy is an entry with the standard target: a header of 32 bytes, then the verdict.
		const verdictAt = 32
		if next-target < verdictAt+4 {
			return nil, fmt.Errorf("the policy of chain %s is not laid out as expected", h.chain)
		}
		if int32(binary.NativeEndian.Uint32(entries[target+verdictAt:])) == -nfAccept-1 {
			f.Policy = accept
		}
		if f.Rules > 0 || f.Policy != accept {
			found = append(found, f)
		}
	}
	return found, nil
}

// entry gives the offsets of an entry's target and of the next entry.
func (l legacy) entry(entries []byte, at int) (target, next int, err error) {
	if at+l.targetOffset+4 <= len(entries) {
		target = at + int(binary.NativeEndian.Uint16(entries[at+l.targetOffset:]))
		next = at + int(binary.NativeEndian.Uint16(entries[at+l.targetOffset+2:]))
	}
	if next <= at || next > len(entries) || target > next {
		return 0, 0, fmt.Errorf("the entry at byte %d is not laid out as expected", at)
	}
	return target, next, nil
}

func getsockopt(fd, level, option int, value unsafe.Pointer, size uintptr) error {
	length := uint32(size)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(value), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
