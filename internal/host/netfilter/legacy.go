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

// Options of getsockopt, which are the same for both families (linux/netfilter_ipv4/ip_tables.h).
const (
	soGetInfo    = 64
	soGetEntries = 65

	maxTableName = 32
)

// Verdicts. A built-in target has -verdict-1.
const (
	nfDrop   = 0
	nfAccept = 1
)

// legacy is one of the two families of tables that are read by getsockopt.
type legacy struct {
	backend, family string
	domain, level   int
	// names is the file with the names of the existing tables. Reading a table that is not in it would
	// create the table. The file is the thread's, since /proc/net belongs to the process.
	names string
	// targetOffset is the offset of target_offset in struct ipt_entry or ip6t_entry. next_offset follows.
	targetOffset int
}

var (
	ip4 = legacy{IPTables, "ip", unix.AF_INET, unix.SOL_IP, procNet + "/ip_tables_names", 88}
	ip6 = legacy{IP6Tables, "ip6", unix.AF_INET6, unix.SOL_IPV6, procNet + "/ip6_tables_names", 140}
)

const procNet = "/proc/thread-self/net"

// legacyHooks are the hooks that forwarded packets pass, in this order.
var legacyHooks = []struct {
	number      int
	hook, chain string
}{
	{unix.NF_INET_PRE_ROUTING, "prerouting", "PREROUTING"},
	{unix.NF_INET_FORWARD, "forward", "FORWARD"},
	{unix.NF_INET_POST_ROUTING, "postrouting", "POSTROUTING"},
}

// tableInfo is struct ipt_getinfo. A hook's chain begins at offset hookEntry in the table, and ends with
// its policy at offset underflow.
type tableInfo struct {
	name       [maxTableName]byte
	validHooks uint32
	hookEntry  [unix.NF_INET_NUMHOOKS]uint32
	underflow  [unix.NF_INET_NUMHOOKS]uint32
	numEntries uint32
	size       uint32
}

// find looks at all tables of the family.
func (l legacy) find() ([]Finding, error) {
	if _, err := os.Stat(procNet); err != nil {
		return nil, failed("look for the tables of "+l.backend, err)
	}
	list, err := os.ReadFile(l.names)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // the kernel has no ip_tables, or has not loaded it
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

// settled reads a table until it has not changed between the reading of its description and of its entries.
func (l legacy) settled(name string, read func() (tableInfo, []byte, error)) ([]Finding, error) {
	const attempts = 20
	for range attempts {
		info, entries, err := read()
		switch {
		case errors.Is(err, unix.EAGAIN): // the table's size has changed meanwhile
			continue
		case errors.Is(err, unix.ENOENT):
			return nil, nil
		case err != nil:
			return nil, err
		}
		return l.chains(name, info, entries)
	}
	return nil, fmt.Errorf("it changed during each of %d attempts: try again when nothing changes it", attempts)
}

// read returns the description of a table, and its entries.
func (l legacy) read(fd int, name string) (info tableInfo, entries []byte, err error) {
	copy(info.name[:len(info.name)-1], name)
	if err := getsockopt(fd, l.level, soGetInfo, unsafe.Pointer(&info), unsafe.Sizeof(info)); err != nil {
		return info, nil, err
	}
	// struct ipt_get_entries has the name, the size, and the entries, aligned to 8 bytes.
	const sizeAt, header = maxTableName, maxTableName + 8
	b := make([]byte, header+int(info.size))
	copy(b, info.name[:])
	binary.NativeEndian.PutUint32(b[sizeAt:], info.size)
	err = getsockopt(fd, l.level, soGetEntries, unsafe.Pointer(&b[0]), uintptr(len(b)))
	return info, b[header:], err
}

// chains returns the built-in chains of a table that forwarded packets pass, if they have a rule or a policy
// other than accept.
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

// entry returns the offsets of an entry's target and of the next entry.
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
