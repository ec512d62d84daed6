// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
)

// Root is etcd's user who may do everything, and its role.
const Root = "root"

// Kinds of users. A user's name is KIND:NAME, which is the common name of its certificates.
const (
	KindReader = "reader"
	KindWriter = "writer"
	KindNode   = "node"
)

// User returns the name of a user in etcd.
func User(kind, name string) string { return kind + ":" + name }

// noPassword lets a user in by certificate alone.
var noPassword = &clientv3.UserAddOptions{NoPassword: true}

// Enable makes etcd ask for certificates of known users, unless it does already: the user root, and roles that read and that write
// the cluster's keys. c is a client with the certificate of root.
func Enable(ctx context.Context, c *clientv3.Client, keys cluster.Keys) error {
	status, err := c.AuthStatus(ctx)
	if err == nil && status.Enabled {
		return nil
	}
	if err != nil && !errors.Is(err, rpctypes.ErrPermissionDenied) {
		return fmt.Errorf("asking etcd whether it knows users: %w", err)
	}
	steps := []func() error{
		func() error {
			return ignore(second(c.UserAddWithOptions(ctx, Root, "", noPassword)), rpctypes.ErrUserAlreadyExist)
		},
		func() error { return ignore(second(c.RoleAdd(ctx, Root)), rpctypes.ErrRoleAlreadyExist) },
		func() error { return second(c.UserGrantRole(ctx, Root, Root)) },
		func() error {
			return role(ctx, c, KindReader, grant{keys.Prefix(), true, clientv3.PermissionType(clientv3.PermRead)})
		},
		func() error {
			return role(ctx, c, KindWriter, grant{keys.Prefix(), true, clientv3.PermissionType(clientv3.PermReadWrite)})
		},
		func() error { return second(c.AuthEnable(ctx)) },
	}
	for _, do := range steps {
		if err := do(); err != nil {
			return fmt.Errorf("making etcd ask for users: %w", err)
		}
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
	return nil
}

// Allow makes a user of a kind, who may log in with the certificate of that name.
func Allow(ctx context.Context, c *clientv3.Client, keys cluster.Keys, kind, name string) error {
	user, its := User(kind, name), kind
	if kind == KindNode {
		its = user
		// A node reads what all have, and writes what is its own.
		err := role(ctx, c, its, grant{keys.Prefix(), true, clientv3.PermissionType(clientv3.PermRead)}, grant{keys.Node(name), false, clientv3.PermissionType(clientv3.PermReadWrite)},
			grant{keys.AnswersOf(name), true, clientv3.PermissionType(clientv3.PermReadWrite)})
		if err != nil {
			return explain(fmt.Sprintf("making the role of node %s", name), err)
		}
	}
	if err := ignore(second(c.UserAddWithOptions(ctx, user, "", noPassword)), rpctypes.ErrUserAlreadyExist); err != nil {
		return explain("adding the user "+user, err)
	}
	return explain("giving "+user+" its role", second(c.UserGrantRole(ctx, user, its)))
}

// Revoke removes a user. Its certificates are refused at once, by each member that has learnt of it. It returns false for a user that
// is not there.
func Revoke(ctx context.Context, c *clientv3.Client, user string) (bool, error) {
	if user == Root {
		return false, errors.New("root cannot be revoked: no one could let anybody in any more")
	}
	_, err := c.UserDelete(ctx, user)
	if errors.Is(err, rpctypes.ErrUserNotFound) {
		return false, nil
	}
	if err != nil {
		return false, explain("revoking "+user, err)
	}
	if strings.HasPrefix(user, KindNode+":") {
		err = ignore(second(c.RoleDelete(ctx, user)), rpctypes.ErrRoleNotFound)
	}
	return true, explain("removing the role of "+user, err)
}

// Grant is what a user may do.
type Grant struct {
	// User is KIND:NAME.
	User string `json:"user"`
	// Roles are those in etcd.
	Roles []string `json:"roles"`
	// Reads and Writes are keys, with * behind those that stand for all that begin so.
	Reads  []string `json:"reads"`
	Writes []string `json:"writes"`
}

// List returns all users but root, sorted.
func List(ctx context.Context, c *clientv3.Client) ([]Grant, error) {
	users, err := c.UserList(ctx)
	if err != nil {
		return nil, explain("asking for the users", err)
	}
	all := []Grant{}
	for _, user := range users.Users {
		if user == Root {
			continue
		}
		u, err := c.UserGet(ctx, user)
		if errors.Is(err, rpctypes.ErrUserNotFound) { // revoked meanwhile
			continue
		}
		if err != nil {
			return nil, explain("asking for "+user, err)
		}
		g := Grant{User: user, Roles: u.Roles, Reads: []string{}, Writes: []string{}}
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
	slices.SortFunc(all, func(a, b Grant) int { return strings.Compare(a.User, b.User) })
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
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("%s: etcd lets only root do that: use the certificate that 'culvert cluster init' made", tried)
	}
	return fmt.Errorf("%s: %w", tried, err)
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
