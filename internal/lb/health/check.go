// SPDX-License-Identifier: Apache-2.0

// Package health runs the health checks of services and reports changes of their state.
package health

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Types of checks.
const (
	TCP   = "tcp"
	HTTP  = "http"
	HTTPS = "https"
	UDP   = "udp"
)

// Check is the configuration of a health check.
type Check struct {
	// Type is TCP, HTTP, HTTPS or UDP.
	Type string `json:"type"`
	// Port is the port to probe, 0 for that of the service.
	Port uint16 `json:"port,omitempty"`
	// Interval is the time in which a failure is to be found. A target that is not down is probed Fall times in it, one that
	// is down once.
	Interval time.Duration `json:"interval"`
	// Timeout is the longest time for an answer.
	Timeout time.Duration `json:"timeout"`
	// Rise is the number of passed probes in a row that make a target up, Fall the number of failed ones that make it down.
	Rise int `json:"rise"`
	Fall int `json:"fall"`
	// Path, Host and Status are for HTTP and HTTPS. Status is "200" or "200-399".
	Path   string `json:"path,omitempty"`
	Host   string `json:"host,omitempty"`
	Status string `json:"status,omitempty"`
	// Send and Expect are for TCP and UDP: the data to send, and the beginning of the answer. UDP without Expect passes
	// without an answer and fails only if the port is unreachable.
	Send   string `json:"send,omitempty"`
	Expect string `json:"expect,omitempty"`
}

// Defaults of checks. The default timeout is shorter if Fall timeouts do not fit in the interval.
const (
	DefaultInterval = time.Second
	DefaultTimeout  = 500 * time.Millisecond
	DefaultRise     = 2
	DefaultFall     = 2
	DefaultPath     = "/"
	DefaultStatus   = "200-399"
)

// Bounds of checks. A request has to fit in one packet with any encapsulation.
const (
	MinInterval = 100 * time.Millisecond
	MaxInterval = time.Hour
	MinTimeout  = 10 * time.Millisecond
	MaxCount    = 100
	MaxSend     = 512
	MaxExpect   = 512
	MaxHost     = 253
)

// WithDefaults returns the check with defaults in place of zeros.
func (c Check) WithDefaults() Check {
	if c.Interval == 0 {
		c.Interval = DefaultInterval
	}
	if c.Rise == 0 {
		c.Rise = DefaultRise
	}
	if c.Fall == 0 {
		c.Fall = DefaultFall
	}
	if c.Timeout == 0 && c.Fall > 0 {
		c.Timeout = max(MinTimeout, min(DefaultTimeout, c.Interval/time.Duration(c.Fall)))
	}
	if c.web() {
		if c.Path == "" {
			c.Path = DefaultPath
		}
		if c.Status == "" {
			c.Status = DefaultStatus
		}
	}
	return c
}

func (c Check) web() bool { return c.Type == HTTP || c.Type == HTTPS }

// Validate returns an error for a check that is not valid. The check must have its defaults.
func (c Check) Validate() error {
	switch {
	case c.Type != TCP && c.Type != UDP && !c.web():
		return fmt.Errorf("type %q of check: use %s, %s, %s or %s", c.Type, TCP, HTTP, HTTPS, UDP)
	case c.Interval < MinInterval || c.Interval > MaxInterval:
		return fmt.Errorf("interval %v of check: use %v to %v", c.Interval, MinInterval, MaxInterval)
	case c.Timeout < MinTimeout || c.Timeout > c.Interval:
		return fmt.Errorf("timeout %v of check: use %v to its interval of %v", c.Timeout, MinTimeout, c.Interval)
	case c.Rise < 1 || c.Rise > MaxCount:
		return fmt.Errorf("rise %d of check: use 1 to %d", c.Rise, MaxCount)
	case c.Fall < 1 || c.Fall > MaxCount:
		return fmt.Errorf("fall %d of check: use 1 to %d", c.Fall, MaxCount)
	}
	if c.web() {
		return c.validateWeb()
	}
	switch {
	case c.Path != "" || c.Host != "" || c.Status != "":
		return fmt.Errorf("check of type %s: path, host and status go with %s and %s", c.Type, HTTP, HTTPS)
	case len(c.Send) > MaxSend:
		return fmt.Errorf("check sends %d bytes: send at most %d", len(c.Send), MaxSend)
	case len(c.Expect) > MaxExpect:
		return fmt.Errorf("check expects %d bytes: expect at most %d", len(c.Expect), MaxExpect)
	}
	return nil
}

func (c Check) validateWeb() error {
	switch {
	case c.Send != "" || c.Expect != "":
		return fmt.Errorf("check of type %s: send and expect go with %s and %s", c.Type, TCP, UDP)
	case len(c.Path) > MaxSend:
		return fmt.Errorf("path of check has %d bytes: use at most %d", len(c.Path), MaxSend)
	case !strings.HasPrefix(c.Path, "/") || !printable(c.Path):
		return fmt.Errorf("path %q of check: begin with /, and escape spaces and control characters", c.Path)
	case len(c.Host) > MaxHost || !printable(c.Host):
		return fmt.Errorf("host %q of check: use a name, or a name and a port", c.Host)
	}
	_, _, err := c.statuses()
	return err
}

// printable returns whether a text has printable ASCII characters only and no spaces.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// statuses returns the first and the last HTTP status that passes.
func (c Check) statuses() (first, last int, err error) {
	from, to, isRange := strings.Cut(c.Status, "-")
	if !isRange {
		to = from
	}
	first, err = strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	if errors.Join(err, err2) != nil || first < 100 || last > 599 || first > last {
		return 0, 0, fmt.Errorf("status %q of check: use one like 200, or a range like 200-399", c.Status)
	}
	return first, last, nil
}
