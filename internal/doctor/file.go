// SPDX-License-Identifier: Apache-2.0

package doctor

import "fmt"

// File is what 'culvert check' has found about a configuration on this host.
type File struct {
	Path string
	// Refused are the errors with which 'culvert run' would be refused, and Unchecked those of looking.
	Refused, Unchecked []string
}

// checkFile has a finding for the configuration. Other findings say how to mend most of what it names.
func checkFile(file *File) []Finding {
	if file == nil {
		return nil
	}
	f := Finding{Check: "config", Finding: fmt.Sprintf("'culvert run -c %s' is not refused on this host", file.Path)}
	switch {
	case len(file.Refused) > 0:
		f.Status, f.Command = Fail, "culvert check -c "+file.Path
		f.Finding = fmt.Sprintf("'culvert run -c %s' would be refused: %s", file.Path, first(file.Refused))
	case len(file.Unchecked) > 0:
		f.Status, f.Command = Warn, "sudo culvert check -c "+file.Path
		f.Finding = fmt.Sprintf("not all that %s needs could be looked at: %s", file.Path, first(file.Unchecked))
	}
	return []Finding{f}
}

// first returns the first of several texts, and says how many there are besides.
func first(texts []string) string {
	if len(texts) == 1 {
		return texts[0]
	}
	return fmt.Sprintf("%s (and %d more)", texts[0], len(texts)-1)
}
