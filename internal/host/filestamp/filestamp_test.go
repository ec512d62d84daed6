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

// TestChangedWhileRead has a file that changes after the time since which it was read, and before its stamp was taken.
func TestChangedWhileRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, tt := range []struct {
		name     string
		modified time.Time
		want     bool
	}{
		{"before", now.Add(-time.Minute), false},
		{"while it was read", now.Add(-time.Second), true},
		{"by a clock that is ahead", now.Add(time.Hour), false},
	} {
		if err := os.Chtimes(path, tt.modified, tt.modified); err != nil {
			t.Fatal(err)
		}
		if got := All([]string{path}, now.Add(-2*time.Second))[0].Changed(); got != tt.want {
			t.Errorf("modified %s: changed: %t", tt.name, got)
		}
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
