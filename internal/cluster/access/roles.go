// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/etcd"
)

// Root is etcd's user who may do everything, and its role.
const Root = "root"

// MemberName is the common name of the certificates of etcd's members. It is no user: a member's certificate does not let clients in.
const MemberName = "member"

// Kinds of users.
const (
	KindReader = "reader"
	KindWriter = "writer"
	KindNode   = "node"
)

// User is a user of etcd: one for each certificate, so that a certificate that was revoked stays so when its owner gets another one.
type User struct {
	// Kind is one of Kind*.
	Kind string `json:"kind"`
	// Name is that of the node or person.
	Name string `json:"name"`
	// ID tells the certificates of a name apart: 8 hexadecimal digits.
	ID string `json:"id"`
}

// NewUser returns a user with a new ID.
func NewUser(kind, name string) User {
	id := make([]byte, 4)
	_, _ = rand.Read(id) // crypto/rand does not fail
	return User{kind, name, hex.EncodeToString(id)}
}

// String is the user's name in etcd and the common name of its certificate: KIND:NAME:ID.
func (u User) String() string { return u.Kind + ":" + u.Name + ":" + u.ID }

// ParseUser reads what String returns. It returns false for what is no user of a cluster.
func ParseUser(text string) (User, bool) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 || parts[0] != KindReader && parts[0] != KindWriter && parts[0] != KindNode {
		return User{}, false
	}
	return User{parts[0], parts[1], parts[2]}, true
}

// role is the name of the user's role in a cluster: culvert/CLUSTER/KIND, and for nodes culvert/CLUSTER/node/NODE.
func (u User) role(keys cluster.Keys) string {
	of := strings.TrimPrefix(keys.Prefix(), "/") + u.Kind
	if u.Kind == KindNode {
		of += "/" + u.Name
	}
	return of
}

// noPassword lets a user in by certificate alone.
var noPassword = &clientv3.UserAddOptions{NoPassword: true}

// Enable makes etcd ask for certificates of known users, unless it does already: the user root, and roles that read and that write
// the cluster's keys. c is a client with the certificate of root. An etcd that asks nobody and has keys of others is refused, since
// they would be locked out.
func Enable(ctx context.Context, c *clientv3.Client, keys cluster.Keys) error {
	status, err := c.AuthStatus(ctx)
	if err != nil {
		return explain("asking etcd whether it knows users", err)
	}
	var steps []func() error
	if !status.Enabled {
		if err := unshared(ctx, c); err != nil {
			return err
		}
		steps = append(steps,
			func() error {
				return ignore(second(c.UserAddWithOptions(ctx, Root, "", noPassword)), rpctypes.ErrUserAlreadyExist)
			},
			func() error { return ignore(second(c.RoleAdd(ctx, Root)), rpctypes.ErrRoleAlreadyExist) },
			func() error { return second(c.UserGrantRole(ctx, Root, Root)) })
	}
	steps = append(steps,
		func() error {
			// Questions to nodes are keys. Where something is may be asked by a reader; documents to check name files of nodes, and errors
			// quote them.
			return role(ctx, c, User{Kind: KindReader}.role(keys), grant{keys.Prefix(), true, clientv3.PermissionType(clientv3.PermRead)},
				grant{keys.AsksOf(cluster.AskWhere), true, clientv3.PermissionType(clientv3.PermReadWrite)})
		},
		func() error {
			return role(ctx, c, User{Kind: KindWriter}.role(keys), grant{keys.Prefix(), true, clientv3.PermissionType(clientv3.PermReadWrite)})
		})
	if !status.Enabled {
		steps = append(steps, func() error { return second(c.AuthEnable(ctx)) })
	}
	for _, do := range steps {
		if err := do(); err != nil {
			return explain("making etcd ask for users", err)
		}
	}
	return nil
}

// unshared returns an error if etcd has keys of others than culvert.
func unshared(ctx context.Context, c *clientv3.Client) error {
	all, err := c.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())
	if err != nil {
		return explain("counting the keys of etcd", err)
	}
	ours, err := c.Get(ctx, cluster.Root, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return explain("counting the keys of etcd", err)
	}
	if n := all.Count - ours.Count; n > 0 {
		return fmt.Errorf("etcd asks nobody who they are, and has %d keys of others, who would be locked out: "+
			"let them in first and turn it on with 'etcdctl auth enable', or give the cluster an etcd of its own", n)
	}
	return nil
}

// grant is a permission for a key, or for all keys that begin with it.
type grant struct {
	key    string
	prefix bool
	kind   clientv3.PermissionType
}

// role makes a role with these permissions and no others.
func role(ctx context.Context, c *clientv3.Client, name string, grants ...grant) error {
	if err := ignore(second(c.RoleAdd(ctx, name)), rpctypes.ErrRoleAlreadyExist); err != nil {
		return err
	}
	for _, g := range grants {
		end := ""
		if g.prefix {
			end = clientv3.GetPrefixRangeEnd(g.key)
		}
		if _, err := c.RoleGrantPermission(ctx, name, g.key, end, g.kind); err != nil {
			return err
		}
	}
	has, err := c.RoleGet(ctx, name)
	if err != nil {
		return err
	}
	for _, p := range has.Perm {
		key, end := string(p.Key), string(p.RangeEnd)
		if slices.ContainsFunc(grants, func(g grant) bool { return g.key == key && g.prefix == (end != "") }) {
			continue
		}
		if _, err := c.RoleRevokePermission(ctx, name, key, end); err != nil {
			return err
		}
	}
	return nil
}

// Allow makes a user, who may log in with the certificate of that name.
func Allow(ctx context.Context, c *clientv3.Client, keys cluster.Keys, u User) error {
	if u.Kind == KindNode {
		// A node reads what all have, and writes what is its own.
		err := role(ctx, c, u.role(keys), grant{keys.Prefix(), true, clientv3.PermissionType(clientv3.PermRead)},
			grant{keys.Node(u.Name), false, clientv3.PermissionType(clientv3.PermReadWrite)},
			grant{keys.AnswersOf(u.Name), true, clientv3.PermissionType(clientv3.PermReadWrite)})
		if err != nil {
			return explain("making the role of node "+u.Name, err)
		}
	}
	if _, err := c.UserAddWithOptions(ctx, u.String(), "", noPassword); err != nil {
		return explain("adding the user "+u.String(), err)
	}
	_, err := c.UserGrantRole(ctx, u.String(), u.role(keys))
	if err != nil {
		_, _ = c.UserDelete(context.WithoutCancel(ctx), u.String())
	}
	return explain("giving "+u.String()+" its role", err)
}

// Revoke removes a user. Its certificate is refused at once, by each member that has learnt of it. It returns false for a user that
// is not there.
func Revoke(ctx context.Context, c *clientv3.Client, u User) (bool, error) {
	_, err := c.UserDelete(ctx, u.String())
	if errors.Is(err, rpctypes.ErrUserNotFound) {
		return false, nil
	}
	return err == nil, explain("revoking "+u.String(), err)
}

// Forget removes what a node without users has left: its role, and its keys, so that it is not taken for one that is away.
func Forget(ctx context.Context, c *clientv3.Client, keys cluster.Keys, node string) error {
	_, err := c.RoleDelete(ctx, User{Kind: KindNode, Name: node}.role(keys))
	if err := ignore(err, rpctypes.ErrRoleNotFound); err != nil {
		return explain("removing the role of node "+node, err)
	}
	_, err = c.Txn(ctx).Then(
		clientv3.OpDelete(keys.Node(node)), clientv3.OpDelete(keys.AnswersOf(node), clientv3.WithPrefix()), clientv3.OpDelete(keys.Maintain(node)),
	).Commit()
	if err == nil {
		err = unmiss(ctx, c, keys, node)
	}
	return explain("removing the state of node "+node, err)
}

// unmiss takes a node off the list of those that are missed.
func unmiss(ctx context.Context, c *clientv3.Client, keys cluster.Keys, node string) error {
	err := etcd.Change(ctx, c, keys.Known(), func(known *cluster.Known) (bool, error) {
		_, missed := (*known)[node]
		delete(*known, node)
		return missed, nil
	})
	var damaged *etcd.RecordError
	if errors.As(err, &damaged) { // by hand: nobody is missed by it, and 'culvert fleet status' tells of it
		return nil
	}
	return err
}

// Grant is what a user may do.
type Grant struct {
	User
	// Roles are those in etcd.
	Roles []string `json:"roles"`
	// Until is when the certificate ends, if this machine has a copy of it.
	Until *time.Time `json:"until,omitempty"`
	// Reads and Writes are keys, with * behind those that stand for all that begin so.
	Reads  []string `json:"reads"`
	Writes []string `json:"writes"`
}

// List returns all users of the cluster but root, sorted.
func List(ctx context.Context, c *clientv3.Client, keys cluster.Keys) ([]Grant, error) {
	users, err := c.UserList(ctx)
	if err != nil {
		return nil, explain("asking for the users", err)
	}
	all := []Grant{}
	for _, user := range users.Users {
		of, is := ParseUser(user)
		if !is {
			continue
		}
		u, err := c.UserGet(ctx, user)
		if errors.Is(err, rpctypes.ErrUserNotFound) { // revoked meanwhile
			continue
		}
		if err != nil {
			return nil, explain("asking for "+user, err)
		}
		if !slices.Contains(u.Roles, of.role(keys)) {
			continue // of another cluster in the same etcd
		}
		g := Grant{User: of, Roles: u.Roles, Reads: []string{}, Writes: []string{}}
		for _, name := range u.Roles {
			r, err := c.RoleGet(ctx, name)
			if err != nil {
				return nil, explain("asking for the role "+name, err)
			}
			for _, p := range r.Perm {
				g.add(p)
			}
		}
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b Grant) int { return strings.Compare(a.String(), b.String()) })
	return all, nil
}

func (g *Grant) add(p *authpb.Permission) {
	key := string(p.Key)
	if len(p.RangeEnd) > 0 {
		key += "*"
	}
	if p.PermType != authpb.WRITE {
		g.Reads = append(g.Reads, key)
	}
	if p.PermType != authpb.READ {
		g.Writes = append(g.Writes, key)
	}
}

// explain says what was tried.
func explain(tried string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrUserNotFound):
		return fmt.Errorf("%s: etcd lets only root do that: use the certificate that 'culvert cluster init' made", tried)
	}
	return fmt.Errorf("%s: %s", tried, etcd.Reason(err))
}

// second is the error of a call.
func second[T any](_ T, err error) error { return err }

// ignore takes an error for none.
func ignore(err, harmless error) error {
	if errors.Is(err, harmless) {
		return nil
	}
	return err
}
