// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"
)

// The page in docs/ is the one that this program writes.
func TestDocumentIsCurrent(t *testing.T) {
	want, err := document(top)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(out); err != nil || string(got) != string(want) {
		t.Errorf("docs/api.yaml is not what the types say, %v: run 'go generate ./internal/genapi'", err)
	}
}

// Names of operations are those of functions.
func TestOperationID(t *testing.T) {
	for path, want := range map[string]string{"/metrics": "metrics", "/v1/": "paths", "/v1/lb": "lb", "/v1/scion/keys": "scionKeys"} {
		if got := operationID(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
