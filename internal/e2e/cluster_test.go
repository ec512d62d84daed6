// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/clusterbed"
	"culvert/internal/config/inforce"
	"culvert/internal/lab"
	"culvert/internal/show/status"
)

// clustered is a router whose configuration comes from a cluster.
type clustered struct {
	*routed
	etcd  *clientv3.Client
	proxy *clusterbed.Proxy // between the router and etcd
	keys  cluster.Keys
	file  string
	state string
}

// newClustered makes the router and an etcd. The file has the router; the rest comes from the cluster.
func newClustered(t *testing.T, name string) *clustered {
	t.Helper()
	bed := clusterbed.New(t, clusterbed.Options{})
	c := &clustered{routed: newRouted(t, name, lab.Options{}), etcd: bed.Client(), keys: cluster.KeysOf("edge"), state: t.TempDir()}
	check(t, c.into.Netns.Do(func() error { // the proxy listens there, and connects from here
		c.proxy = clusterbed.NewProxy(t, strings.TrimPrefix(bed.Member(0).Endpoint(), "http://"))
		return nil
	}))
	c.file = routeFile(t, fmt.Sprintf("name = %q\ninterfaces = [\"to-a\", \"to-b\"]\n%s[cluster]\nname = \"edge\"\nnode = \"n1\"\nroles = [\"edge\"]\n"+
		"endpoints = [\"http://%s\"]\nstate_dir = %q\n", name, smallRoute, c.proxy.Addr(), c.state))
	return c
}

func (c *clustered) put(key string, value any) {
	c.t.Helper()
	text, err := json.Marshal(value)
	check(c.t, err)
	_, err = c.etcd.Put(c.t.Context(), key, string(text))
	check(c.t, err)
}

// write writes a revision with a document for the router's role, and has the router run it.
func (c *clustered) write(number int64, document string) {
	c.t.Helper()
	scope := cluster.Scope{Kind: cluster.ScopeRole, Name: "edge"}
	sum := sha256.Sum256([]byte(document))
	_, err := c.etcd.Put(c.t.Context(), c.keys.Document(number, scope), document)
	check(c.t, err)
	c.put(c.keys.Revision(number), cluster.Revision{Number: number, Documents: map[string]string{scope.String(): hex.EncodeToString(sum[:])}})
	c.put(c.keys.Current(), cluster.Current{Revision: number})
}

// stands returns how the router says that it stands with its cluster.
func (c *clustered) stands() inforce.Cluster {
	c.t.Helper()
	var r status.Report
	check(c.t, json.Unmarshal([]byte(c.command(program(), "status", "-j")), &r))
	for _, router := range r.Routers {
		if router.Here && router.Config != nil && router.Config.Cluster != nil {
			return *router.Config.Cluster
		}
	}
	return inforce.Cluster{}
}

func (c *clustered) await(what string, is func(inforce.Cluster) bool) {
	c.t.Helper()
	wait(c.t, what, func() bool { return is(c.stands()) })
}

func (c *clustered) list() string { c.t.Helper(); return c.command(program(), "filter", "list") }

// TestCluster has a router run revisions, urgent changes and maintenance of its cluster while packets flow. etcd goes away for a while and
// comes back, a revision does not check, and the process starts again without an etcd. No packet is lost.
func TestCluster(t *testing.T) {
	c := newClustered(t, "clu")
	p := serveRoute(t, c.lab, c.file)
	c.await("etcd to be reached", func(s inforce.Cluster) bool { return s.Reached && s.Revision == 0 })
	c.begin()

	const first = "[[filter.set]]\nname = \"bad\"\nentries = [\"192.0.2.0/24\"]\n[[filter.rule]]\nname = \"bad\"\naction = \"drop\"\nsrc = \"@bad\"\n"
	c.write(1, first)
	c.await("revision 1", func(s inforce.Cluster) bool { return s.Revision == 1 })
	if list := c.list(); !strings.Contains(list, "bad") {
		t.Errorf("the rule of the revision does not run: %s", list)
	}
	c.write(2, "[[filter.rule]]\nname = \"wrong\"\naction = \"drop\"\nexpression = \"udp prot 53\"\n")
	c.await("the refusal", func(s inforce.Cluster) bool {
		return strings.Contains(s.Refused, "etcd:role/edge:4:") && s.Revision == 1
	})

	all := cluster.Scope{Kind: cluster.ScopeAll}
	c.put(c.keys.Urgent("00000001"), cluster.Urgent{Scope: all, Words: "filter add", Request: json.RawMessage(`{"rule": "urgent-1", "action": "count", "expression": "udp port 5000"}`)})
	c.put(c.keys.Urgent("00000002"), cluster.Urgent{Scope: all, Words: "filter set add", Request: json.RawMessage(`{"set": "bad", "entries": ["198.51.100.7"]}`)})
	c.put(c.keys.Urgent("00000003"), cluster.Urgent{Scope: all, Words: "filter flush", Request: json.RawMessage(`{}`)})
	c.await("urgent changes", func(s inforce.Cluster) bool {
		return slices.Equal(s.Urgent, []string{"00000001", "00000002"}) && strings.Contains(s.UrgentFailed["00000003"], "does not delete all rules")
	})
	members := func() string { return c.command(program(), "filter", "set", "show", "bad") }
	if list, set := c.list(), members(); !strings.Contains(list, "urgent-1") || !strings.Contains(set, "198.51.100.7") {
		t.Errorf("the urgent changes do not run: %s, %s", list, set)
	}

	// etcd is gone. What has changed meanwhile is in force once it is back.
	c.proxy.Cut()
	c.await("etcd to be lost", func(s inforce.Cluster) bool { return !s.Reached && s.Problem != "" })
	third := first + "[[filter.rule]]\nname = \"third\"\naction = \"count\"\nexpression = \"tcp port 7\"\n"
	c.write(3, third)
	_, err := c.etcd.Delete(t.Context(), c.keys.Urgent("00000003"))
	check(t, err)
	c.load.wait(200)
	if s := c.stands(); s.Revision != 1 || len(s.Urgent) != 2 {
		t.Errorf("without etcd it stands at %+v", s)
	}
	c.proxy.Heal()
	c.await("revision 3", func(s inforce.Cluster) bool {
		return s.Revision == 3 && s.Reached && s.Refused == "" && len(s.UrgentFailed) == 0
	})
	if list, set := c.list(), members(); !strings.Contains(list, "urgent-1") || !strings.Contains(list, "third") || !strings.Contains(set, "198.51.100.7") {
		t.Errorf("after revision 3: %s, %s", list, set)
	}

	// A process that starts without an etcd has all of that.
	c.proxy.Cut()
	p.end(syscall.SIGTERM)
	p = serveRoute(t, c.lab, c.file)
	if list, set := c.list(), members(); !strings.Contains(list, "urgent-1") || !strings.Contains(list, "third") || !strings.Contains(set, "198.51.100.7") {
		t.Errorf("after a start without etcd: %s, %s", list, set)
	}
	if s := c.stands(); s.Revision != 3 || s.Reached {
		t.Errorf("after a start without etcd it stands at %+v", s)
	}
	for _, id := range []string{"00000001", "00000002"} {
		_, err := c.etcd.Delete(t.Context(), c.keys.Urgent(id))
		check(t, err)
	}
	c.put(c.keys.Maintain("n1"), cluster.Maintain{By: "somebody", At: time.Now()})
	c.proxy.Heal()
	c.await("maintenance", func(s inforce.Cluster) bool { return s.Maintain == cluster.MaintainNothing && len(s.Urgent) == 0 })
	if list, set := c.list(), members(); strings.Contains(list, "urgent-1") || !strings.Contains(list, "third") || strings.Contains(set, "198.51.100.7") || !strings.Contains(set, "192.0.2.0/24") {
		t.Errorf("after the end of the urgent changes: %s, %s", list, set)
	}
	_, err = c.etcd.Delete(t.Context(), c.keys.Maintain("n1"))
	check(t, err)
	c.await("the end of maintenance", func(s inforce.Cluster) bool { return s.Maintain == "" })
	c.finish("fwd route", "fwd route-fib", "pass route-off", "pass route-egress")
	p.end(syscall.SIGTERM)
}

// TestClusterLost starts a process whose last good documents are all corrupt, without an etcd. The data plane goes on as it is, and no packet is
// lost, until etcd answers. A revision without documents is the node's own file alone.
func TestClusterLost(t *testing.T) {
	c := newClustered(t, "clo")
	p := serveRoute(t, c.lab, c.file)
	c.await("etcd to be reached", func(s inforce.Cluster) bool { return s.Reached })
	c.begin()
	const document = "[[filter.rule]]\nname = \"first\"\naction = \"count\"\nexpression = \"tcp port 7\"\n"
	c.write(1, document)
	c.await("revision 1", func(s inforce.Cluster) bool { return s.Revision == 1 })
	lose := func() {
		p.end(syscall.SIGTERM)
		c.proxy.Cut()
		for _, name := range []string{"last-good", "last-good.1", "last-good.2"} {
			check(t, os.WriteFile(filepath.Join(c.state, name), []byte("corrupt"), 0o600))
		}
		p = start(t, c.lab, "rut", program(), "run", "-c", c.file)
		c.await("the process to wait", func(s inforce.Cluster) bool {
			return s.Waits && !s.Reached && s.Problem != "" && len(s.StateProblems) == 1 && !strings.Contains(s.StateProblems[0], "\n")
		})
	}
	lose()
	for verb, want := range map[string]string{"status": "WAITS for documents", "doctor": "it waits for documents, and leaves data plane clo as it is"} {
		if out, err := c.lab.Run(t.Context(), "rut", program(), verb); !strings.Contains(string(out)+fmt.Sprint(err), want) {
			t.Errorf("%s does not say that the process waits: %s, error %v", verb, out, err)
		}
	}
	if out, err := c.lab.Run(t.Context(), "rut", program(), "attach", "-c", c.file); err == nil || !strings.Contains(err.Error(), "is left as it is") {
		t.Errorf("attaching says %s, error %v", out, err)
	}
	c.load.wait(200)
	if list := c.list(); !strings.Contains(list, "first") {
		t.Errorf("the rule of the documents is gone: %s", list)
	}
	c.proxy.Heal()
	c.await("revision 1 again", func(s inforce.Cluster) bool {
		return !s.Waits && s.Reached && s.Revision == 1 && len(s.StateProblems) == 0
	})
	if list := c.list(); !strings.Contains(list, "first") {
		t.Errorf("the rule of the documents is gone with etcd: %s", list)
	}
	lose()
	c.put(c.keys.Current(), cluster.Current{})
	c.proxy.Heal()
	c.await("the file alone", func(s inforce.Cluster) bool {
		return !s.Waits && s.Reached && s.Revision == 0 && len(s.StateProblems) == 0
	})
	wait(t, "the end of the rule", func() bool { return !strings.Contains(c.list(), "first") })
	c.finish("fwd route", "fwd route-fib", "pass route-off", "pass route-egress")

	// Without a data plane that goes on, the file alone is what there is.
	p.end(syscall.SIGTERM)
	c.proxy.Cut()
	c.command(program(), "detach", "--all")
	for _, name := range []string{"last-good", "last-good.1", "last-good.2"} {
		check(t, os.WriteFile(filepath.Join(c.state, name), []byte("corrupt"), 0o600))
	}
	p = serveRoute(t, c.lab, c.file)
	if s := c.stands(); s.Waits || s.Revision != 0 || len(s.StateProblems) != 1 {
		t.Errorf("without a data plane it stands at %+v", s)
	}
	c.write(2, document)
	c.proxy.Heal()
	c.await("revision 2 after the file alone", func(s inforce.Cluster) bool { return s.Revision == 2 && len(s.StateProblems) == 0 })
	p.end(syscall.SIGTERM)
}

// TestClusterStart has a file that is not whole without its cluster. A start waits for the documents, then goes on without etcd; a corrupt
// file of last good documents is told, and those before are used.
func TestClusterStart(t *testing.T) {
	c := newClustered(t, "cls")
	text, err := os.ReadFile(c.file)
	check(t, err)
	check(t, os.WriteFile(c.file, []byte(strings.Replace(string(text), smallRoute, "", 1)), 0o600))
	p := start(t, c.lab, "rut", program(), "run", "-c", c.file)
	wait(t, "the node to wait", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r, err := c.etcd.Get(ctx, c.keys.Node("n1"))
		return err == nil && len(r.Kvs) == 1 && strings.Contains(string(r.Kvs[0].Value), "waits for documents")
	})
	c.write(1, smallRoute)
	wait(t, "the router", func() bool { return p.running() && mirrored(t, c.lab) })
	c.await("revision 1", func(s inforce.Cluster) bool { return s.Revision == 1 })
	c.write(2, smallRoute+"[[filter.set]]\nname = \"two\"\n")
	c.await("revision 2", func(s inforce.Cluster) bool { return s.Revision == 2 })
	if out := c.command(program(), "check", "-c", c.file); !strings.Contains(out, "those that this node has run last, of revision 2") {
		t.Errorf("check says: %s", out)
	}
	p.end(syscall.SIGTERM)
	c.proxy.Cut()
	check(t, os.WriteFile(filepath.Join(c.state, "last-good"), []byte("corrupt"), 0o600))
	p = serveRoute(t, c.lab, c.file)
	c.await("the one before", func(s inforce.Cluster) bool {
		return s.Revision == 1 && len(s.StateProblems) == 1 && strings.Contains(s.StateProblems[0], "is corrupt")
	})
	c.proxy.Heal()
	c.await("revision 2 again", func(s inforce.Cluster) bool { return s.Revision == 2 && len(s.StateProblems) == 0 })
	if out := c.command(program(), "check", "-c", c.file); strings.Contains(out, "corrupt") {
		t.Errorf("check says: %s", out)
	}
	p.end(syscall.SIGTERM)
}
