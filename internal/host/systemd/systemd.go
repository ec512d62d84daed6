// SPDX-License-Identifier: Apache-2.0

// Package systemd tells systemd how a service is (sd_notify(3), Type=notify and WatchdogSec= in systemd.service(5)). Without
// systemd nothing happens.
package systemd

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// Notifier notifies the systemd that started this process. Its methods may be called at the same time.
type Notifier struct {
	// send passes assignments in the form of sd_notify(3) on. An error is of no use to anybody: systemd finds out by itself that
	// it hears nothing.
	send func(state string)

	mu        sync.Mutex
	ready     bool
	reloading int
	status    string
}

// New returns the Notifier of this process.
func New() *Notifier {
	return &Notifier{send: func(state string) { _, _ = daemon.SdNotify(false, state) }}
}

// WatchdogPeriod is the time within which systemd expects a Watchdog, 0 if it expects none.
func WatchdogPeriod() time.Duration {
	d, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0
	}
	return d
}

// Ready ends the start of the service. Only the first call counts.
func (n *Notifier) Ready() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.ready {
		n.ready = true
		n.send(daemon.SdNotifyReady)
	}
}

// IsReady tells whether Ready was called.
func (n *Notifier) IsReady() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ready
}

// Status sets the text that 'systemctl status' shows, one line, if it has changed.
func (n *Notifier) Status(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	text = strings.ReplaceAll(text, "\n", "; ")
	if text != n.status {
		n.status = text
		n.send("STATUS=" + text)
	}
}

// Extend has systemd wait for Ready for d more, from now on.
func (n *Notifier) Extend(d time.Duration) {
	n.send(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds()))
}

// Watchdog says that the service works.
func (n *Notifier) Watchdog() { n.send(daemon.SdNotifyWatchdog) }

// Stopping says that the service ends.
func (n *Notifier) Stopping() { n.send(daemon.SdNotifyStopping) }

// Reloading says that the configuration is read again. done says that this has ended, with whatever result. During the start
// neither says anything.
func (n *Notifier) Reloading() (done func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.ready {
		return func() {}
	}
	if n.reloading++; n.reloading == 1 {
		var now unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // this clock exists everywhere
		n.send(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/1000))
	}
	return sync.OnceFunc(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.reloading--; n.reloading == 0 {
			n.send(daemon.SdNotifyReady)
		}
	})
}
