// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/bench/peer"
)

// haproxy is a proxy: it accepts connections and makes others to the backends.
type haproxy struct {
	files   *peer.Scratch
	process *peer.Process
}

// haproxyProgram is the name of the program.
const haproxyProgram = "haproxy"

// haproxyConfig is the configuration of haproxy. By default it has one thread for each CPU.
func haproxyConfig() string {
	var b strings.Builder
	fmt.Fprintf(&b, "global\n  maxconn 1000\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n"+
		"listen lb\n  bind %s\n  balance roundrobin\n", vip4)
	for n := range backendCount {
		fmt.Fprintf(&b, "  server b%d %s:%d\n", n, backendAddr(n), vip4.Port())
	}
	return b.String()
}

func (*haproxy) available() error {
	if _, err := exec.LookPath(haproxyProgram); err != nil {
		return fmt.Errorf("find %s: %w: 'make deps' installs it", haproxyProgram, err)
	}
	return nil
}

func (d *haproxy) place(ctx context.Context, b *tcpBed) (err error) {
	if err := errors.Join(makeHost(b.path, nil, true), b.nearby(), b.routes(throughBalancer, throughBalancer)); err != nil {
		return err
	}
	if d.files, err = peer.NewScratch(); err != nil {
		return err
	}
	config := filepath.Join(d.files.Path(), "haproxy.cfg")
	if err := os.WriteFile(config, []byte(haproxyConfig()), 0o600); err != nil {
		return fmt.Errorf("configure %s: %w", haproxyProgram, err)
	}
	// haproxy needs a working directory with a path, which a Scratch has not, so it changes to the root directory.
	if d.process, err = peer.Start(b.under, d.files.Path(), nil, haproxyProgram, "-db", "-C", "/", "-f", config); err != nil {
		return err
	}
	return d.waitReady(ctx, b)
}

// waitReady waits until the proxy accepts connections.
func (d *haproxy) waitReady(ctx context.Context, b *tcpBed) error {
	const limit = 20 * time.Second
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		err := b.client.Do(func() error {
			fd, err := connect()
			if err == nil {
				err = unix.Close(fd)
			}
			return err
		})
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("interrupted: %w", ctx.Err())
		case d.process.Ended() || time.Now().After(end):
			return fmt.Errorf("start %s: %w: %s", haproxyProgram, err, d.process.LastLine())
		}
	}
}

func (d *haproxy) remove() error {
	var err error
	if d.process != nil {
		err = d.process.Stop(2 * time.Second)
	}
	return errors.Join(err, d.files.Close())
}

func (*haproxy) spreads() bool { return true }
