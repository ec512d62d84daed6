// SPDX-License-Identifier: Apache-2.0

// Package cpus reads and checks lists of CPUs.
package cpus

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// maxNumber bounds CPU numbers, so that a range cannot expand to a huge list. No kernel has more CPUs.
const maxNumber = 8192

// Parse reads a list in the form of taskset(1) and cpuset(7), such as "0-2,5". It keeps the order of the list.
func Parse(list string) ([]int, error) {
	var all []int
	if strings.TrimSpace(list) == "" {
		return nil, errors.New("the list of CPUs is empty: name at least one, as in \"1-3,5\"")
	}
	for _, part := range strings.Split(list, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		from, err := number(first)
		to := from
		if err == nil && isRange {
			to, err = number(last)
		}
		if err != nil || to < from {
			return nil, fmt.Errorf("%q is no list of CPUs: write it as \"1-3,5\"", list)
		}
		for cpu := from; cpu <= to; cpu++ {
			all = append(all, cpu)
		}
	}
	return all, nil
}

func number(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n >= maxNumber || strings.HasPrefix(s, "+") {
		return 0, errors.New("no CPU number")
	}
	return n, nil
}

// Format writes an ascending list in the form that Parse reads.
func Format(list []int) string {
	var b strings.Builder
	for i := 0; i < len(list); i++ {
		first := i
		for i+1 < len(list) && list[i+1] == list[i]+1 {
			i++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(list[first]))
		if i > first {
			b.WriteString("-" + strconv.Itoa(list[i]))
		}
	}
	return b.String()
}

// Online returns the CPUs that are online, in ascending order.
func Online() ([]int, error) {
	const path = "/sys/devices/system/cpu/online"
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("finding the CPUs that are online: %w", err)
	}
	list, err := Parse(string(b))
	if err != nil {
		return nil, fmt.Errorf("finding the CPUs that are online: %s: %w", path, err)
	}
	return list, nil
}

// Check returns an error for an empty list, more than limit CPUs, a CPU that is in the list twice, and one
// that is not online.
func Check(list []int, limit int) error {
	if len(list) == 0 {
		return errors.New("the list of CPUs is empty: name at least one")
	}
	if len(list) > limit {
		return fmt.Errorf("%d CPUs: use at most %d", len(list), limit)
	}
	online, err := Online()
	if err != nil {
		return err
	}
	for n, cpu := range list {
		if slices.Contains(list[:n], cpu) {
			return fmt.Errorf("CPU %d is given twice", cpu)
		}
		if !slices.Contains(online, cpu) {
			return fmt.Errorf("CPU %d is not online: there are %s", cpu, Format(online))
		}
	}
	return nil
}
