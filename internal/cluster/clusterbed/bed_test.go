// SPDX-License-Identifier: Apache-2.0

package clusterbed

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// TestThreeMembers loses the leader, and one member more: two of three go on, one does not, and all are back afterwards.
func TestThreeMembers(t *testing.T) {
	b := New(t, Options{Members: 3})
	c := b.Client()
	put := func(key string, wait time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		_, err := c.Put(ctx, key, "v")
		return err
	}
	must(t, put("a", time.Minute))
	first := b.Leader()
	first.Kill()
	second := b.Leader()
	must(t, put("b", time.Minute))
	second.Kill()
	if put("c", time.Second) == nil {
		t.Fatal("one member of three takes a change")
	}
	first.Begin()
	second.Begin()
	must(t, put("d", time.Minute))
}

// TestProxy cuts, silences and heals the way to a member.
func TestProxy(t *testing.T) {
	b := New(t, Options{})
	c, err := clientv3.New(clientv3.Config{Endpoints: b.Endpoints(), DialTimeout: time.Second, Logger: zap.NewNop()})
	must(t, err)
	defer c.Close()
	get := func(wait time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		_, err := c.Get(ctx, "a")
		return err
	}
	must(t, get(time.Minute))
	for name, disturb := range map[string]func(){"cut": b.Member(0).Proxy().Cut, "silent": b.Member(0).Proxy().Silence} {
		disturb()
		if get(300*time.Millisecond) == nil {
			t.Errorf("%s: the member answers", name)
		}
		b.Member(0).Proxy().Heal()
		must(t, get(time.Minute))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
