// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// errRenewed ends a session whose certificate etcd refuses, while the node's files have another one.
var errRenewed = errors.New("the node has another certificate now")

// connect returns the client of the sessions, a new one for the first and if the node has got another certificate: connections keep the one
// that they were made with.
func (a *Agent) connect() (*clientv3.Client, error) {
	if client := a.connected(); client != nil {
		if !a.renewed() {
			return client, nil
		}
		a.Log.Info("connecting to etcd with the node's new certificate", "cluster", a.Cluster, "node", a.Node)
		a.disconnect()
	}
	certificate := ""
	if a.Certificate != nil {
		certificate = a.Certificate() // before it is used: one that comes meanwhile is noticed later
	}
	client, err := a.Connect()
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.client, a.certificate = client, certificate
	a.mu.Unlock()
	return client, nil
}

// renewed tells whether the node's files have another certificate than the connections.
func (a *Agent) renewed() bool {
	if a.Certificate == nil {
		return false
	}
	is := a.Certificate()
	a.mu.Lock()
	defer a.mu.Unlock()
	return is != "" && is != a.certificate
}
