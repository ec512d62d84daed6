// SPDX-License-Identifier: Apache-2.0

package scion

// Files implements stage.Reader: the reference router's own files.
func (p *plan) Files() []string {
	key0, key1 := p.router.keyPaths()
	return []string{p.router.Path, p.router.TopologyPath(), key0, key1}
}
