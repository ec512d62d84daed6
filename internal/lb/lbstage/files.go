// SPDX-License-Identifier: Apache-2.0

package lbstage

// Files implements stage.Reader: the files with passwords of BGP sessions, and with the key of peers. Those of TLS, and those of
// sources, are read again while the process runs.
func (p *Plan) Files() (paths []string) {
	if p.file == nil {
		return nil
	}
	if t := p.file.Peers; t != nil {
		paths = append(paths, t.Relative("key_file", t.KeyFile))
	}
	if p.file.BGP == nil {
		return paths
	}
	for _, n := range p.file.BGP.Neighbor {
		if n.PasswordFile != "" {
			paths = append(paths, n.Relative("password_file", n.PasswordFile))
		}
	}
	return paths
}
