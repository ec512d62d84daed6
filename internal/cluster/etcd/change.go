// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Change changes the record of a key, which others may write at the same time: change gets what is there, the zero value without a key, and
// returns false to leave that as it is. It is called again if somebody has written the key before its record was.
func Change[T any](ctx context.Context, c *clientv3.Client, key string, change func(*T) (bool, error)) error {
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
				return fmt.Errorf("the key %s is not as 'culvert fleet' writes it: %w", key, err)
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
