// SPDX-License-Identifier: Apache-2.0

package lb

import "culvert/internal/lb/lbplane"

// Unserved returns the VIPs that have no backend for new flows although nobody has drained them.
func Unserved(p *lbplane.Plane) (vips []Service, err error) {
	s, err := Load(p)
	if err != nil {
		return nil, err
	}
	l, err := readLive(p, &s)
	if err != nil {
		return nil, err
	}
	for _, v := range s.VIPs {
		if !v.Drained && !s.serves(&v, l) {
			vips = append(vips, v.Service)
		}
	}
	return vips, nil
}
