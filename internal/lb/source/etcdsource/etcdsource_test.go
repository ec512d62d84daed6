// SPDX-License-Identifier: Apache-2.0

package etcdsource

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster/clusterbed"
	"culvert/internal/lb"
	"culvert/internal/lb/source"
	"culvert/internal/lb/source/sourcetest"
)

const prefix = "/services/web/"

// world is a source with an etcd of one member.
type world struct {
	t      *testing.T
	bed    *clusterbed.Bed
	client *clientv3.Client
	source Source
}

func newWorld(t *testing.T) *world {
	bed := clusterbed.New(t, clusterbed.Options{})
	return &world{t, bed, bed.Client(), Source{Prefix: prefix, Endpoints: bed.Endpoints()}}
}

// do changes keys: those with the value "-" are deleted.
func (w *world) do(keys ...string) int64 {
	w.t.Helper()
	var ops []clientv3.Op
	for n := 0; n < len(keys); n += 2 {
		if keys[n+1] == "-" {
			ops = append(ops, clientv3.OpDelete(keys[n]))
		} else {
			ops = append(ops, clientv3.OpPut(keys[n], keys[n+1]))
		}
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	r, err := w.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Header.Revision
}

// TestConformance has a backend in the name of a key, without a value.
func TestConformance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do("/services/web2/10.9.9.9", "", "/services/we", "no backend") // which are not of the prefix
	had := make(map[string]bool)
	sourcetest.Run(t, sourcetest.World{
		Source: w.source,
		Set: func(all []netip.Addr) {
			now := make(map[string]bool)
			var changes []string
			for _, a := range all {
				now[a.String()] = true
				changes = append(changes, prefix+a.String(), "")
			}
			for a := range had {
				if !now[a] {
					changes = append(changes, prefix+a, "-")
				}
			}
			had = now
			w.do(changes...)
		},
		Spoil: func() { w.do(prefix+"x", "10.0.0.9:80") },
		Mend:  func() { w.do(prefix+"x", "-") },
	})
}

// TestValues reads backends with settings.
func TestValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do(prefix+"a", "10.0.0.2 weight=3", prefix+"b", "10.0.0.1\n")
	s := sourcetest.Watch(t, w.source)
	got := s.Backends("10.0.0.1", "10.0.0.2")
	if want := (lb.Offer{Addr: netip.MustParseAddr("10.0.0.2"), Weight: 3}); got[1] != want {
		t.Errorf("backend %+v, want %+v", got[1], want)
	}
	w.do(prefix+"c", "10.0.0.1")
	s.Fails(`key "/services/web/c": backend 10.0.0.1 is there twice, first in key "/services/web/b"`)
	w.do(prefix+"c", "-", prefix+"b", "-")
	s.Backends("10.0.0.2")
}

// TestCut cuts the connection, and compacts what has happened meanwhile.
func TestCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do(prefix+"10.0.0.1", "")
	s := sourcetest.Watch(t, w.source)
	s.Backends("10.0.0.1")
	proxy := w.bed.Member(0).Proxy()
	proxy.Cut()
	s.Fails("etcd: ")
	w.do(prefix+"10.0.0.2", "")
	w.do(prefix+"10.0.0.1", "-")
	rev := w.do(prefix+"10.0.0.3", "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := w.client.Compact(ctx, rev, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	proxy.Heal()
	s.Backends("10.0.0.2", "10.0.0.3")
	w.do(prefix+"10.0.0.2", "-")
	s.Backends("10.0.0.3")
}

// TestTooMany has more keys than a source may have, and none too many again.
func TestTooMany(t *testing.T) {
	keys := make(map[string]string)
	for n := range source.Most + 1 {
		keys[fmt.Sprintf("%s%d", prefix, n)] = netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}).String()
	}
	var got error
	count := func(offers []lb.Offer, err error) {
		if got = err; err == nil && len(offers) != source.Most {
			t.Errorf("%d backends", len(offers))
		}
	}
	Source{Prefix: prefix}.tell(keys, count)
	if got != source.ErrTooMany {
		t.Errorf("error %v", got)
	}
	delete(keys, prefix+"0")
	Source{Prefix: prefix}.tell(keys, count)
	if got != nil {
		t.Errorf("error %v", got)
	}
}
