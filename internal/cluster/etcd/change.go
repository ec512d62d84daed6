// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// RecordError says that a key has no record: somebody has written it by hand.
type RecordError struct {
	Key string
	Err error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("the key %s is not as 'culvert fleet' writes it: %v", e.Key, e.Err)
}

// Unwrap returns what is wrong with what is there.
func (e *RecordError) Unwrap() error { return e.Err }

// Change changes the record of a key, which others may write at the same time: change gets what is there, the zero value without a key, and
// returns false to leave that as it is. It is called again if somebody has written the key before its record was. A key without a record is a
// RecordError.
func Change[T any](ctx context.Context, c *clientv3.Client, key string, change func(*T) (bool, error)) error {
	return changeRecord(ctx, c, key, false, change)
}

// Renew is Change that takes a key without a record for none, and writes it anew.
func Renew[T any](ctx context.Context, c *clientv3.Client, key string, change func(*T) (bool, error)) error {
	return changeRecord(ctx, c, key, true, change)
}

func changeRecord[T any](ctx context.Context, c *clientv3.Client, key string, renew bool, change func(*T) (bool, error)) error {
	for {
		r, err := c.Get(ctx, key)
		if err != nil {
			return err
		}
		var record T
		var read int64 // revision of the key's last change, 0 without a key
		if len(r.Kvs) > 0 {
			read = r.Kvs[0].ModRevision
			if err := json.Unmarshal(r.Kvs[0].Value, &record); err != nil {
				if !renew {
					return &RecordError{key, err}
				}
				record = *new(T) // some of it may have been read
			}
		}
		if changed, err := change(&record); err != nil || !changed {
			return err
		}
		text, err := json.Marshal(record)
		if err != nil {
			return err
		}
		w, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", read)).Then(clientv3.OpPut(key, string(text))).Commit()
		if err != nil || w.Succeeded {
			return err
		}
	}
}
