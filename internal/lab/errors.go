// SPDX-License-Identifier: Apache-2.0

package lab

import "strings"

// joined is several errors, shown in one line.
type joined []error

// join returns the errors that are not nil as one error, or nil if there is none.
func join(errs ...error) error {
	var all joined
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	default:
		return all
	}
}

func (j joined) Error() string {
	lines := make([]string, len(j))
	for i, err := range j {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "; ")
}

func (j joined) Unwrap() []error { return j }
