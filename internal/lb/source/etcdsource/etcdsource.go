// SPDX-License-Identifier: Apache-2.0

// Package etcdsource takes the backends of a VIP from the keys in etcd that begin with a prefix.
package etcdsource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"culvert/internal/cluster/etcd"
	"culvert/internal/lb/source"
)

// Source is a prefix of keys in etcd.
type Source struct {
	// Prefix is what the keys begin with.
	Prefix string
	// Endpoints are the members of etcd, as "https://192.0.2.1:2379".
	Endpoints []string
	// TLS has the files for connections to https endpoints, in PEM.
	TLS TLS
}

// TLS names files in PEM.
type TLS struct {
	// CA has the certificates of the authority that the members' certificates come from.
	CA string
	// Cert and Key are what this machine shows. They are "" where etcd asks for no certificate.
	Cert, Key string
}

// Times of calls.
const (
	// callTime bounds a call: a member without a leader may never answer.
	callTime = 5 * time.Second
	// A watch alone does not tell that etcd is gone. lookPeriod is the time between two looks at the connection, which keepalives end
	// when the other side falls silent, and lostAfter is how long there may be none.
	lookPeriod = 250 * time.Millisecond
	lostAfter  = 2 * time.Second
	// firstPause and longestPause bound the time between two attempts.
	firstPause   = 200 * time.Millisecond
	longestPause = 5 * time.Second
)

// Watch implements source.Source. It reads all keys at one revision and follows their changes from there.
func (s Source) Watch(ctx context.Context, tell source.Tell) {
	pause := firstPause
	for ctx.Err() == nil {
		answered, err := s.follow(ctx, tell)
		if ctx.Err() != nil {
			return
		}
		if answered {
			pause = firstPause
		}
		if err != nil {
			tell(nil, fmt.Errorf("etcd: %s", etcd.Reason(err)))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// errAgain has everything be read again at once, with no error told.
var errAgain = errors.New("changes are missing")

// follow connects, and tells what the keys say until it fails. It returns whether etcd has answered.
func (s Source) follow(ctx context.Context, tell source.Tell) (answered bool, err error) {
	client, err := s.connect()
	if err != nil {
		return false, err
	}
	defer client.Close()
	for {
		err := s.read(ctx, client, func() { answered = true }, tell)
		if !errors.Is(err, errAgain) {
			return answered, err
		}
	}
}

// read reads all keys, and follows them until it fails.
func (s Source) read(ctx context.Context, client *clientv3.Client, answered func(), tell source.Tell) error {
	call, cancel := context.WithTimeout(ctx, callTime)
	all, err := client.Get(call, s.Prefix, clientv3.WithPrefix(), clientv3.WithLimit(source.Most+1))
	cancel()
	if err != nil {
		return err
	}
	answered()
	keys := make(map[string]string, len(all.Kvs))
	for _, kv := range all.Kvs {
		keys[string(kv.Key)] = string(kv.Value)
	}
	s.tell(keys, tell)

	ctx, cancel = context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	begun := make(chan clientv3.WatchChan, 1)
	go func() { // Watch does not return before etcd has heard of it
		begun <- client.Watch(ctx, s.Prefix, clientv3.WithPrefix(), clientv3.WithRev(all.Header.Revision+1))
	}()
	var changes clientv3.WatchChan
	look := time.NewTicker(lookPeriod)
	defer look.Stop()
	connected := time.Now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
			if client.ActiveConnection().GetState() == connectivity.Ready {
				connected = time.Now()
			} else if time.Since(connected) > lostAfter {
				return fmt.Errorf("no connection to %s", strings.Join(s.Endpoints, ", "))
			}
		case changes = <-begun:
		case change, ok := <-changes:
			switch {
			case !ok:
				return errors.New("it has ended the watch")
			case change.CompactRevision > 0:
				return errAgain
			case change.Err() != nil:
				return change.Err()
			}
			for _, e := range change.Events {
				if e.Type == clientv3.EventTypeDelete {
					delete(keys, string(e.Kv.Key))
				} else {
					keys[string(e.Kv.Key)] = string(e.Kv.Value)
				}
			}
			if all.More || len(keys) > source.Most {
				return errAgain
			}
			if len(change.Events) > 0 {
				s.tell(keys, tell)
			}
		}
	}
}

// tell tells the backends of keys.
func (s Source) tell(keys map[string]string, tell source.Tell) {
	var list source.List
	if len(keys) > source.Most {
		tell(nil, source.ErrTooMany)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		entry := keys[key]
		if strings.TrimSpace(entry) == "" {
			entry = strings.TrimPrefix(key, s.Prefix)
		}
		if err := list.Parse(fmt.Sprintf("key %.100q", key), entry); err != nil {
			tell(nil, err)
			return
		}
	}
	tell(list.All(), nil)
}
