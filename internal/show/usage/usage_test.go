// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

func TestError(t *testing.T) {
	for _, tc := range []struct {
		err   error
		usage bool
		text  string
	}{
		{fs.ErrNotExist, false, "file does not exist"},
		{Error(fs.ErrNotExist), true, "usage: file does not exist"},
		{Errorf("count %d", -1), true, "usage: count -1"},
		{Error(Errorf("count %d", -1)), true, "usage: count -1"},
		{Errorf("read it: %w", fs.ErrNotExist), true, "usage: read it: file does not exist"},
		{fmt.Errorf("rule: %w", Error(fs.ErrNotExist)), true, "rule: usage: file does not exist"},
	} {
		if Is(tc.err) != tc.usage || tc.err.Error() != tc.text {
			t.Errorf("%q is usage: %t, want %q and %t", tc.err, Is(tc.err), tc.text, tc.usage)
		}
	}
	if !errors.Is(Error(fs.ErrNotExist), fs.ErrNotExist) {
		t.Error("the marked error does not wrap the cause")
	}
	if Is(nil) {
		t.Error("nil is marked")
	}
}
