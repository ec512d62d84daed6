// SPDX-License-Identifier: Apache-2.0

package lbstage

// Files implements stage.Reader: the files with passwords of BGP sessions.
func (p *Plan) Files() (paths []string) {
	if p.file == nil || p.file.BGP == nil {
		return nil
	}
	for _, n := range p.file.BGP.Neighbor {
		if n.PasswordFile != "" {
			paths = append(paths, n.Relative("password_file", n.PasswordFile))
		}
	}
	return paths
}
