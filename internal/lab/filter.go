// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// The topology filter: a host behind culvert's filter, and a client.
//
//	client               host
//	to-host --------- to-client
//	198.18.1.2       198.18.1.1
//
// IPv6 has 2001:db8:1::. Culvert runs in host with an empty filter. Its metrics, on port 9441 of every address, are an HTTP
// server for experiments.
var filterTopology = topology{
	about:      "a host behind an empty filter, and a client",
	namespaces: []string{"host", "client"},
	check:      checkFilter,
	build:      buildFilter,
}

func checkFilter(o Options) error {
	if len(o.Routers) > 0 || o.SegmentSwitch || o.BFD != 0 || o.Forward || o.IPv6 || o.Routes != (Routes{}) || o.Plain {
		return errors.New("it has no router: leave out the options of other topologies")
	}
	if o.Timeout < 0 {
		return errors.New("a time must not be negative")
	}
	return nil
}

const filterConfig = `interfaces = ["to-client"]
metrics = "[::]:9441"

[filter]
`

func buildFilter(ctx context.Context, l *Lab, o Options) error {
	if o.Timeout == 0 {
		o.Timeout = bgpTimeout
	}
	if err := l.needPrograms("ping"); err != nil {
		return err
	}
	err := l.addPair(
		end{ns: "host", name: "to-client", addrs: both(netLeft, 1)},
		end{ns: "client", name: "to-host", addrs: both(netLeft, 2)}, o)
	if err != nil {
		return err
	}
	progress(o.Out, "veth pair host/to-client to client/to-host")
	err = join(
		l.Do("client", func() error { return join(vlanOffloadOff("to-host"), defaultRoutes(netLeft, 1)) }),
		l.Do("host", protectedSettings),
	)
	if err != nil {
		return err
	}
	if o.StaticNeighbors {
		if err := l.setNeighbors(); err != nil {
			return err
		}
	}
	config := filepath.Join(l.Dir, "culvert.toml")
	if err := os.WriteFile(config, []byte(filterConfig), 0o644); err != nil {
		return fmt.Errorf("write culvert's configuration: %w", err)
	}
	w := waiter{lab: l, out: o.Out, timeout: o.Timeout}
	return l.startCulvert(ctx, w, "host", config, "to-client")
}
