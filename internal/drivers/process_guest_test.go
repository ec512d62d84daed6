// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/testbed"
)

// process is 'culvert run' beside the near ends.
type process struct {
	*trial
	log *testbed.Output
}

// metricsAddress is where a process serves its metrics.
const metricsAddress = "127.0.0.1:9441"

// serve starts a process on both ports and other ones, and waits until it forwards. end ends it, once, and takes culvert off all ports.
func (m *trial) serve(others ...*port) (p process, end func()) {
	m.Helper()
	m.detach(m.T)
	ports := append(others, m.in, m.out)
	p = process{m, &testbed.Output{}}
	cmd := exec.Command(program, "run", "-c", file(m.T, fmt.Sprintf("metrics = %q\n", metricsAddress)+config(m.mode, ports...)))
	cmd.Stdout, cmd.Stderr = p.log, p.log
	m.here.Must(m.T, func() error {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err == nil {
			err = cmd.Start()
		}
		return err
	})
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		if err := cmd.Wait(); err != nil {
			m.Errorf("culvert run: %v: %s", err, p.log)
		}
		m.detach(m.T)
		if m.Failed() {
			m.Logf("culvert run said:\n%s", p.log)
		}
	})
	p.logs(`msg=attached`)
	p.forwardsAgain()
	return p, end
}

// forwardsAgain waits until culvert itself forwards packets between both ports.
func (p process) forwardsAgain() {
	p.Helper()
	answer := ""
	if !wait(func() bool { answer = p.forwards(16); return answer == "yes" }) {
		p.Errorf("the process does not forward: %s", answer)
	}
}

// logs waits until the process has logged one of the texts, and returns it.
func (p process) logs(texts ...string) (found string) {
	p.Helper()
	if !wait(func() bool {
		for _, text := range texts {
			if strings.Contains(p.log.String(), text) {
				found = text
			}
		}
		return found != ""
	}) {
		p.Fatalf("the process has logged\n%s, without any of %q", p.log, texts)
	}
	return found
}

// logsOnce checks that the process has logged a text, and not again.
func (p process) logsOnce(text string) {
	p.Helper()
	p.logs(text)
	if n := strings.Count(p.log.String(), text); n != 1 {
		p.Errorf("the process has logged %q %d times", text, n)
	}
}

// says waits until culvert's output for a verb contains a text.
func (m *trial) says(text string, verb ...string) {
	m.Helper()
	out := ""
	if !wait(func() bool { out, _ = m.culvert(verb...); return strings.Contains(out, text) }) {
		m.Errorf("culvert %s: want %q in\n%s", strings.Join(verb, " "), text, out)
	}
}

// metric waits until the process serves a line.
func (p process) metric(line string) {
	p.Helper()
	var text []byte
	read := func() error {
		c, err := net.Dial("tcp4", metricsAddress)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err = io.WriteString(c, "GET /metrics HTTP/1.0\r\n\r\n"); err != nil {
			return err
		}
		text, err = io.ReadAll(c)
		return err
	}
	var err error
	if !wait(func() bool {
		err = p.here.Do(read)
		return err == nil && strings.Contains(string(text), "\n"+line+"\n")
	}) {
		p.Errorf("metrics lack %q: %v", line, err)
	}
}
