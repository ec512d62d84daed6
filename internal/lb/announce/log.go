// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// gobgpLog is a handler for gobgp's log. This package logs what happens to sessions itself, so gobgp's messages of level info
// become debug messages. Some errors of a session are only in this log: failed gets them. withdrawn gets the
// prefixes that an update has withdrawn.
type gobgpLog struct {
	out       slog.Handler
	failed    func(text string)
	withdrawn func(prefixes ...netip.Prefix)
}

func (l *gobgpLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *gobgpLog) Handle(ctx context.Context, r slog.Record) error {
	switch r.Message {
	case "failed to connect":
		text := attr(r, "Error").String()
		// Cut off the dialer's prefix, which names both ends.
		if _, why, ok := strings.Cut(text, ":179: "); ok {
			text = strings.TrimPrefix(why, "connect: ")
		}
		l.failed("no connection: " + text)
	case "sent update":
		l.withdrawn(withdrawn(r)...)
	case "sent notification":
		// Other notifications end established sessions, for which gobgp sends events.
		code, _ := attr(r, "Code").Any().(int64)
		sub, _ := attr(r, "Subcode").Any().(int64)
		switch {
		case code == bgp.BGP_ERROR_OPEN_MESSAGE_ERROR && sub == bgp.BGP_ERROR_SUB_BAD_PEER_AS:
			l.failed("the neighbor has another AS number than it should: compare both sides")
		case code == bgp.BGP_ERROR_MESSAGE_HEADER_ERROR, code == bgp.BGP_ERROR_OPEN_MESSAGE_ERROR, code == bgp.BGP_ERROR_FSM_ERROR:
			l.failed("the neighbor is refused: " + bgp.NewNotificationErrorCode(uint8(code), uint8(sub)).String())
		}
	}
	if r.Level == slog.LevelInfo {
		r.Level = slog.LevelDebug
	}
	if !l.out.Enabled(ctx, r.Level) {
		return nil
	}
	return l.out.Handle(ctx, r)
}

// withdrawn returns the prefixes of both families that an update withdraws.
func withdrawn(r slog.Record) (prefixes []netip.Prefix) {
	routes, _ := attr(r, "withdrawals").Any().([]bgp.PathNLRI)
	attrs, _ := attr(r, "attributes").Any().([]bgp.PathAttributeInterface)
	for _, a := range attrs {
		if gone, ok := a.(*bgp.PathAttributeMpUnreachNLRI); ok {
			routes = slices.Concat(routes, gone.Value)
		}
	}
	for _, route := range routes {
		if n, ok := route.NLRI.(*bgp.IPAddrPrefix); ok {
			prefixes = append(prefixes, n.Prefix)
		}
	}
	return prefixes
}

// attr returns the attribute of a record with a key.
func attr(r slog.Record, key string) (v slog.Value) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			v = a.Value
		}
		return a.Key != key
	})
	return v
}

func (l *gobgpLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &gobgpLog{out: l.out.WithAttrs(attrs), failed: l.failed, withdrawn: l.withdrawn}
}

func (l *gobgpLog) WithGroup(name string) slog.Handler {
	return &gobgpLog{out: l.out.WithGroup(name), failed: l.failed, withdrawn: l.withdrawn}
}
