// SPDX-License-Identifier: Apache-2.0

package filterstage

// Files implements stage.Reader: the files of sets and programs.
func (p *Plan) Files() []string { return p.files }

// filesOf returns the paths of the files that a table names.
func filesOf(t *Table) (paths []string) {
	for _, s := range t.Sets {
		if s.File != "" {
			paths = append(paths, s.File)
		}
	}
	for _, r := range t.Rules {
		if r.Program != "" {
			paths = append(paths, r.Program)
		}
	}
	return paths
}
