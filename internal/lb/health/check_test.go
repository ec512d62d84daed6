// SPDX-License-Identifier: Apache-2.0

package health

import (
	"strings"
	"testing"
	"time"
)

func TestDefaults(t *testing.T) {
	tests := []struct {
		name     string
		in, want Check
	}{
		{"TCP", Check{Type: TCP}, Check{Type: TCP, Interval: time.Second, Timeout: time.Second / 2, Rise: 2, Fall: 2}},
		{
			"HTTP", Check{Type: HTTP},
			Check{Type: HTTP, Interval: time.Second, Timeout: time.Second / 2, Rise: 2, Fall: 2, Path: "/", Status: "200-399"},
		},
		{
			"a timeout that fits", Check{Type: UDP, Interval: time.Second, Fall: 5},
			Check{Type: UDP, Interval: time.Second, Timeout: time.Second / 5, Rise: 2, Fall: 5},
		},
		{
			"nothing left out",
			Check{Type: HTTPS, Interval: time.Minute, Timeout: time.Second, Rise: 3, Fall: 4, Path: "/x", Status: "204"},
			Check{Type: HTTPS, Interval: time.Minute, Timeout: time.Second, Rise: 3, Fall: 4, Path: "/x", Status: "204"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.in.WithDefaults()
			if got != tt.want {
				t.Fatalf("%+v, not %+v", got, tt.want)
			}
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		in   Check
		want string
	}{
		{Check{}, `type "" of check: use tcp, http, https or udp`},
		{Check{Type: "icmp"}, `type "icmp" of check`},
		{Check{Type: TCP, Interval: time.Millisecond}, "interval 1ms of check: use 100ms to 1h0m0s"},
		{Check{Type: TCP, Interval: 2 * time.Hour}, "interval 2h0m0s of check"},
		{Check{Type: TCP, Timeout: 2 * time.Second}, "timeout 2s of check: use 10ms to its interval of 1s"},
		{Check{Type: TCP, Timeout: time.Millisecond}, "timeout 1ms of check"},
		{Check{Type: TCP, Rise: -1}, "rise -1 of check: use 1 to 100"},
		{Check{Type: TCP, Fall: 101}, "fall 101 of check: use 1 to 100"},
		{Check{Type: TCP, Fall: -1}, "timeout 0s of check"},
		{Check{Type: TCP, Path: "/"}, "check of type tcp: path, host and status go with http and https"},
		{Check{Type: UDP, Host: "www"}, "check of type udp: path, host and status go with"},
		{Check{Type: HTTP, Send: "x"}, "check of type http: send and expect go with tcp and udp"},
		{Check{Type: UDP, Send: strings.Repeat("x", 513)}, "check sends 513 bytes: send at most 512"},
		{Check{Type: UDP, Expect: strings.Repeat("x", 513)}, "check expects 513 bytes"},
		{Check{Type: HTTP, Path: "health"}, `path "health" of check: begin with /`},
		{Check{Type: HTTP, Path: "/a b"}, `path "/a b" of check`},
		{Check{Type: HTTP, Path: "/a\r\nX: y"}, `path "/a\r\nX: y" of check`},
		{Check{Type: HTTP, Path: "/" + strings.Repeat("x", 512)}, "path of check has 513 bytes"},
		{Check{Type: HTTPS, Host: "a\nb"}, `host "a\nb" of check`},
		{Check{Type: HTTPS, Host: strings.Repeat("x", 254)}, "of check: use a name"},
		{Check{Type: HTTP, Status: "ok"}, `status "ok" of check: use one like 200`},
		{Check{Type: HTTP, Status: "400-200"}, `status "400-200" of check`},
		{Check{Type: HTTP, Status: "200-600"}, `status "200-600" of check`},
		{Check{Type: HTTP, Status: "99"}, `status "99" of check`},
	}
	for _, tt := range tests {
		err := tt.in.WithDefaults().Validate()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, not %q", tt.in, err, tt.want)
		}
	}
}
