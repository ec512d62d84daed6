// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// waiter waits for conditions of a lab and reports progress.
type waiter struct {
	lab     *Lab
	out     io.Writer
	timeout time.Duration // for each condition
}

var errTooLate = errors.New("not in time")

// until calls ask until it returns done, and writes how far it is every two seconds. It returns an error if one of the lab's
// processes ends, and after the timeout.
func (w waiter) until(ctx context.Context, what string, ask func(context.Context) (done bool, how string)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.timeout, errTooLate)
	defer cancel()
	start := time.Now()
	reported := start
	for {
		asked := time.Now()
		done, how := ask(ctx)
		if done {
			progress(w.out, "%s: %s after %.1f s", what, how, time.Since(start).Seconds())
			return nil
		}
		if ended := w.lab.endedProcess(); ended != nil {
			return fmt.Errorf("%s has ended: %s", ended.Name, w.lab.lastProblem(*ended))
		}
		if time.Since(reported) >= 2*time.Second {
			reported = time.Now()
			progress(w.out, "waiting for %s: %s, %d s", what, how, int(time.Since(start).Seconds()))
		}
		select {
		case <-ctx.Done():
			if context.Cause(ctx) == errTooLate {
				return fmt.Errorf("wait for %s: %s after %s: a slow or busy machine needs more --timeout", what, how, w.timeout)
			}
			return ctx.Err()
		// Counting a million routes takes CPU time that the programs of the lab need.
		case <-time.After(max(200*time.Millisecond, 10*time.Since(asked))):
		}
	}
}

// oneLine joins the lines of a text with spaces.
func oneLine(text string) string {
	return strings.Join(strings.Fields(text), " ")
}

// birdAsk sends a command to the BIRD in a namespace and returns its answer.
func (l *Lab) birdAsk(ctx context.Context, ns string, command ...string) (string, error) {
	out, err := l.Run(ctx, ns, append([]string{"birdcl", "-s", l.birdSocket(ns)}, command...)...)
	return string(out), err
}

var (
	birdCount    = regexp.MustCompile(`(?m)^(\d+) of \d+ routes`)
	birdFiltered = regexp.MustCompile(`(?m)^\s+Routes:\s+(\d+) imported, (\d+) filtered`)
	birdRTRState = regexp.MustCompile(`(?m)^rtr\s.*\s(\S+)$`)
)

// origins returns the number of route origin authorizations of one family that BIRD in rut has.
func (l *Lab) origins(ctx context.Context, family string) (int, error) {
	out, err := l.birdAsk(ctx, "rut", "show", "route", "table", "origins"+family, "count")
	if err != nil {
		return 0, err
	}
	m := birdCount.FindStringSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("BIRD in rut answers without a count: %s", oneLine(out))
	}
	return strconv.Atoi(m[1])
}

// session returns whether rut's BGP session of one family is up, and the numbers of prefixes imported and filtered.
func (l *Lab) session(ctx context.Context, family string) (up bool, imported, filtered int, err error) {
	out, err := l.birdAsk(ctx, "rut", "show", "protocols", "all", "peer"+family)
	if err != nil {
		return false, 0, 0, err
	}
	up = strings.Contains(out, "Established")
	if m := birdFiltered.FindStringSubmatch(out); m != nil {
		imported, _ = strconv.Atoi(m[1])
		filtered, _ = strconv.Atoi(m[2])
	}
	return up, imported, filtered, nil
}

// waitRTR waits until rpki accepts sessions, which is when it has read all authorizations. A session that is refused is tried
// again only after a while.
func (l *Lab) waitRTR(ctx context.Context, w waiter) error {
	return w.until(ctx, "stayrtr in rpki", func(context.Context) (bool, string) {
		err := l.Do("rpki", func() error {
			conn, err := net.DialTimeout("tcp", rtrAddr().String(), time.Second)
			if err != nil {
				return err
			}
			return conn.Close()
		})
		if err != nil {
			return false, oneLine(err.Error())
		}
		return true, "accepts sessions"
	})
}

// rtrState returns the state of rut's session with rpki, as BIRD names it.
func (l *Lab) rtrState(ctx context.Context) (string, error) {
	out, err := l.birdAsk(ctx, "rut", "show", "protocols", "rtr")
	if err != nil {
		return "", err
	}
	m := birdRTRState.FindStringSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("BIRD in rut answers without a state: %s", oneLine(out))
	}
	return m[1], nil
}

// waitOrigins waits until rut has all route origin authorizations. It restarts a session that brings no more of them.
func (l *Lab) waitOrigins(ctx context.Context, w waiter) error {
	stall := stall{limit: rtrStall}
	return w.until(ctx, "RPKI by RTR from rpki", func(ctx context.Context) (bool, string) {
		n4, err4 := l.origins(ctx, "4")
		n6, err6 := l.origins(ctx, "6")
		state, err := l.rtrState(ctx)
		if err := join(err4, err6, err); err != nil {
			return false, oneLine(err.Error())
		}
		how := fmt.Sprintf("%d of %d IPv4 and %d of %d IPv6 authorizations, session %s",
			n4, l.BGP.IPv4.ROAs, n6, l.BGP.IPv6.ROAs, state)
		if n4 == l.BGP.IPv4.ROAs && n6 == l.BGP.IPv6.ROAs {
			return true, how
		}
		if waited, over := stall.over(n4+n6, time.Now()); over {
			progress(w.out, "RPKI by RTR from rpki: no progress for %d s, %s: session restarted", int(waited.Seconds()), how)
			if _, err := l.birdAsk(ctx, "rut", "restart", "rtr"); err != nil {
				return false, oneLine(err.Error())
			}
		}
		return false, how
	})
}

// rtrStall is after how long without progress the session with rpki is restarted for the first time.
const rtrStall = 20 * time.Second

// stall notices when a number stays the same for too long. Each time it waits twice as long, since a restart costs a busy
// machine time.
type stall struct {
	limit time.Duration
	last  int
	since time.Time
}

// over tells whether the number n has stayed the same for the limit, and for how long.
func (s *stall) over(n int, now time.Time) (time.Duration, bool) {
	if s.since.IsZero() || n != s.last {
		s.last, s.since = n, now
	}
	waited := now.Sub(s.since)
	if waited < s.limit {
		return waited, false
	}
	s.since = now
	s.limit *= 2
	return waited, true
}

// waitSessions waits until both sessions are up.
func (l *Lab) waitSessions(ctx context.Context, w waiter) error {
	return w.until(ctx, "BGP between rut and peer", func(ctx context.Context) (bool, string) {
		up4, _, _, err4 := l.session(ctx, "4")
		up6, _, _, err6 := l.session(ctx, "6")
		if err := join(err4, err6); err != nil {
			return false, oneLine(err.Error())
		}
		word := map[bool]string{true: "established", false: "not established"}
		return up4 && up6, fmt.Sprintf("IPv4 %s, IPv6 %s", word[up4], word[up6])
	})
}

// waitFiltered waits until rut has rejected all invalid prefixes, and records their number in the state.
func (l *Lab) waitFiltered(ctx context.Context, w waiter) error {
	return w.until(ctx, "filter in rut", func(ctx context.Context) (bool, string) {
		_, _, n4, err4 := l.session(ctx, "4")
		_, _, n6, err6 := l.session(ctx, "6")
		if err := join(err4, err6); err != nil {
			return false, oneLine(err.Error())
		}
		l.BGP.IPv4.Filtered, l.BGP.IPv6.Filtered = n4, n6
		return n4 == l.BGP.IPv4.Invalid && n6 == l.BGP.IPv6.Invalid,
			fmt.Sprintf("%d of %d IPv4 and %d of %d IPv6 prefixes with an invalid origin rejected", n4, l.BGP.IPv4.Invalid, n6, l.BGP.IPv6.Invalid)
	})
}

// waitTable waits until rut's kernel has the table, as routes of a protocol of rtnetlink(7). before is the count of routes
// before the table came.
func (l *Lab) waitTable(ctx context.Context, w waiter, before kernelCount, protocol uint8) error {
	want4, want6 := l.BGP.IPv4.Announced-l.BGP.IPv4.Invalid, l.BGP.IPv6.Announced-l.BGP.IPv6.Invalid
	return w.until(ctx, "table in rut's kernel", func(context.Context) (bool, string) {
		now, err := l.kernelCount("rut")
		if err != nil {
			return false, err.Error()
		}
		n4, n6 := now.v4-before.v4, now.v6-before.v6
		if n4 >= want4 && n6 >= want6 {
			// The counters are cheap and include other routes. Listing the routes gives the exact numbers.
			err = l.Do("rut", func() (err error) {
				if n4, err = countRoutes(unix.AF_INET, protocol); err == nil {
					n6, err = countRoutes(unix.AF_INET6, protocol)
				}
				return err
			})
			if err != nil {
				return false, err.Error()
			}
		}
		l.BGP.IPv4.Routes, l.BGP.IPv6.Routes = n4, n6
		return n4 == want4 && n6 == want6, fmt.Sprintf("%d of %d IPv4 and %d of %d IPv6 routes", n4, want4, n6, want6)
	})
}

// waitPings waits until pings from left to a target in the table are answered, in both families.
func (l *Lab) waitPings(ctx context.Context, w waiter) error {
	targets := []netip.Addr{l.BGP.IPv4.Target, l.BGP.IPv6.Target}
	return w.until(ctx, fmt.Sprintf("ping from left to %s and %s", targets[0], targets[1]), func(ctx context.Context) (bool, string) {
		for _, target := range targets {
			if _, err := l.Run(ctx, "left", "ping", "-n", "-c", "1", "-W", "1", target.String()); err != nil {
				return false, "no answer from " + target.String()
			}
		}
		return true, "answers"
	})
}
