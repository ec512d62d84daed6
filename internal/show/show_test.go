// SPDX-License-Identifier: Apache-2.0

package show

import (
	"bytes"
	"os"
	"testing"
)

func TestWrite(t *testing.T) {
	var b bytes.Buffer
	if err := JSON(&b, map[string]any{"link": "sibling->10.0.0.2"}); err != nil {
		t.Fatal(err)
	}
	if err := Lines(&b, []string{"a", "", "b"}); err != nil {
		t.Fatal(err)
	}
	if want := "{\n  \"link\": \"sibling->10.0.0.2\"\n}\na\n\nb\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestNoTerminal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for _, out := range []any{nil, &bytes.Buffer{}, w} {
		if _, ok := Terminal(out); ok {
			t.Errorf("%T is a terminal", out)
		}
	}
}
