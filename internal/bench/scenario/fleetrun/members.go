// SPDX-License-Identifier: Apache-2.0

package fleetrun

import (
	"context"
	"fmt"
	"os"
	"time"

	"culvert/internal/bench/peer"
)

// member is a member of etcd: 'culvert cluster serve', in a process of its own.
type member struct {
	name, address string
	process       *peer.Process
}

// program is what members are run by: this program. In tests it does the same as culvert for these arguments.
const program = "/proc/self/exe"

// Ports of members, each of which has an address of its own.
const (
	clientPort = 2379
	peerPort   = 2380
)

func addressOf(n int) string { return fmt.Sprintf("127.0.0.%d", n+1) }

// endpoints are the URLs of members for clients.
func endpoints() (urls []string) {
	for n := range memberCount {
		urls = append(urls, fmt.Sprintf("https://%s:%d", addressOf(n), clientPort))
	}
	return urls
}

func (b *bed) startMembers() error {
	var all []string
	for n := range memberCount {
		all = append(all, "--member", fmt.Sprintf("m%d=https://%s:%d", n, addressOf(n), peerPort))
	}
	for n := range memberCount {
		m := &member{name: fmt.Sprintf("m%d", n), address: addressOf(n)}
		dir := b.dir(m.name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		args := append([]string{
			"cluster", "serve", "--dir", b.dir("cluster"), "--name", m.name, "--data", b.dir(m.name, "etcd"),
			"--listen", fmt.Sprintf("%s:%d", m.address, clientPort),
		}, all...)
		var err error
		if m.process, err = peer.Start(b.space, dir, nil, program, args...); err != nil {
			return err
		}
		b.members = append(b.members, m)
	}
	return nil
}

// serving waits until all members serve.
func (b *bed) serving(ctx context.Context) error {
	end := time.After(patience)
	for _, m := range b.members {
		for {
			_, err := b.scrape(ctx, m)
			if err == nil {
				break
			}
			if m.process.Ended() {
				return fmt.Errorf("member %s of etcd has ended: %s", m.name, m.process.LastLine())
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-end:
				return fmt.Errorf("member %s of etcd does not serve after %v: %w", m.name, patience, err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}
