// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine describes the machine of a measurement.
type Machine struct {
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	// Load is the load average over a minute before the measurement. Other work disturbs a measurement.
	Load string `json:"load"`
	// Pinned is the CPU that the measurement ran on.
	Pinned int `json:"pinned"`
}

// ThisMachine describes this machine. Fields that cannot be read are empty.
func ThisMachine(pinned int) Machine {
	m := Machine{CPUs: runtime.NumCPU(), Pinned: pinned}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = cpuModel(string(info))
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(load), " ")
	}
	return m
}

// cpuModel finds the first "model name" of /proc/cpuinfo.
func cpuModel(info string) string {
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (m Machine) String() string {
	return fmt.Sprintf("Linux %s, %d CPUs (%s), measured on CPU %d, load %s at the start", m.Kernel, m.CPUs, m.CPU,
		m.Pinned, m.Load)
}
