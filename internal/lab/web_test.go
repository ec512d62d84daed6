// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestWebHealth sets the status of GET /health, also with a newline behind it, as a shell sends it.
func TestWebHealth(t *testing.T) {
	h := webHandler("b1")
	ask := func(method, body string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/health", strings.NewReader(body)))
		return w.Code
	}
	for _, tt := range []struct {
		body      string
		put, then int
	}{
		{"503", http.StatusOK, 503},
		{"204\n", http.StatusOK, 204},
		{"x", http.StatusBadRequest, 204},
		{"100", http.StatusBadRequest, 204},
	} {
		if got := ask(http.MethodPut, tt.body); got != tt.put {
			t.Errorf("PUT %q: status %d, want %d", tt.body, got, tt.put)
		}
		if got := ask(http.MethodGet, ""); got != tt.then {
			t.Errorf("after PUT %q: status %d, want %d", tt.body, got, tt.then)
		}
	}
}
