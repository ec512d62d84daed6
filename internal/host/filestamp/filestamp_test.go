// SPDX-License-Identifier: Apache-2.0

package filestamp

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestChanged(t *testing.T) {
	large := make([]byte, hashed+1)
	write := func(content string) func(string) error {
		return func(path string) error {
			err := os.WriteFile(path, []byte(content), 0o600)
			later := time.Now().Add(time.Minute)
			return firstError(err, os.Chtimes(path, later, later))
		}
	}
	for _, tt := range []struct {
		name   string
		before []byte
		change func(path string) error
		want   bool
	}{
		{"nothing", []byte("a"), func(string) error { return nil }, false},
		{"touched", []byte("a"), write("a"), false},
		{"same size", []byte("a"), write("b"), true},
		{"another size", []byte("a"), write("ab"), true},
		{"removed", []byte("a"), os.Remove, true},
		{"emptied", []byte("a"), write(""), true},
		{"appeared", nil, write("a"), true},
		{"a large file touched", large, write(string(large)), true},
		{"never there", nil, func(string) error { return nil }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			if tt.before != nil {
				if err := os.WriteFile(path, tt.before, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s := Of(path)
			if err := tt.change(path); err != nil {
				t.Fatal(err)
			}
			if got := s.Changed(); got != tt.want {
				t.Errorf("changed: %t", got)
			}
		})
	}
}

func firstError(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}
