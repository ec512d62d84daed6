// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"culvert/internal/host/trust"
)

// Process is a process that runs a SCION router, with or without a data plane.
type Process struct {
	PID int
	// NetNS is the inode of its network namespace, and Router the router's ID.
	NetNS  uint32
	Router string
}

// LockPath returns the path of the lock that such a process holds. It contains the network namespace, because routers of
// the same name may run in different ones.
func LockPath(netns uint32, router string) string {
	return filepath.Join(trust.RunDir, fmt.Sprintf("scion-%d-%s.lock", netns, url.PathEscape(router)))
}

// Processes returns the processes in this PID namespace that run SCION routers, in whatever network namespace.
func Processes() ([]Process, error) {
	if err := trust.Dir(trust.RunDir); err != nil {
		return nil, nil // no process that runs as root has made it
	}
	paths, err := filepath.Glob(filepath.Join(trust.RunDir, "scion-*.lock"))
	if err != nil {
		return nil, fmt.Errorf("listing the locks of SCION routers: %w", err)
	}
	var all []Process
	for _, path := range paths {
		var p Process
		if p.PID = trust.LockHolder(path); p.PID == 0 {
			continue
		}
		escaped := ""
		name := strings.TrimSuffix(filepath.Base(path), ".lock")
		if n, err := fmt.Sscanf(name, "scion-%d-%s", &p.NetNS, &escaped); n != 2 || err != nil {
			continue
		}
		if p.Router, err = url.PathUnescape(escaped); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}
