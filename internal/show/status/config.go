// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"
	"time"

	"culvert/internal/config"
	"culvert/internal/config/inforce"
	"culvert/internal/show/text"
)

// Config is the configuration of the process that serves a data plane.
type Config struct {
	File   string    `json:"file"`
	ReadAt time.Time `json:"read_at"`
	// StartedAt is when the process began, left out if it has not told.
	StartedAt time.Time `json:"started_at,omitzero"`
	// Differs are the files that have changed since they were read.
	Differs []string `json:"differs"`
	// Reload is the last attempt to read them again, left out if there was none.
	Reload *inforce.Reload `json:"reload,omitempty"`
	// Until is when the configuration before this one comes back unless this one is kept, left out if it stays.
	Until *time.Time `json:"until,omitempty"`
	// Web is the page to look at, left out if there is none.
	Web *inforce.Web `json:"web,omitempty"`
	// Cluster is how the node stands with its cluster, left out without one.
	Cluster *inforce.Cluster `json:"cluster,omitempty"`
}

// describeConfig reads which configuration is in force. It is left out if the process has not told.
func (r *Router) describeConfig(p inforce.Plane) {
	s, err := inforce.Of(p)
	if err != nil || s == nil {
		return
	}
	r.Config = &Config{
		File: s.File, ReadAt: s.ReadAt.Truncate(time.Second), StartedAt: s.StartedAt.Truncate(time.Second), Differs: append([]string{}, s.Differs()...), Reload: s.Reload, Until: s.Until, Web: s.Web, Cluster: s.Cluster,
	}
}

// lines says what is not as the files have it, and where the page to look at is.
func (c *Config) lines(now time.Time) (lines []string) {
	if w := c.Web; w != nil {
		line := "  page  " + config.WebURL(w.Listen)
		switch {
		case w.Problem != "":
			line = "  page  NOT THERE: " + w.Listen + ": " + w.Problem
		case w.Open:
			line += "  OPEN to whoever reaches " + w.Listen + ": it has no password"
		}
		lines = append(lines, line)
	}
	if c.Cluster != nil {
		lines = append(lines, clusterLines(c.Cluster, now)...)
	}
	if c.Until != nil {
		lines = append(lines, fmt.Sprintf("  configuration  goes back to the one before in %.0f s: to keep it, culvert reload --keep", max(c.Until.Sub(now).Seconds(), 0)))
	}
	refused := c.Reload != nil && !c.Reload.OK && !c.Reload.NotKept
	switch {
	case c.Reload != nil && c.Reload.NotKept:
		lines = append(lines, fmt.Sprintf("  configuration  WENT BACK %s: %s", text.Ago(now.Sub(c.Reload.At)), c.Reload.Error))
	case refused:
		lines = append(lines, fmt.Sprintf("  configuration  NOT RELOADED %s: %s", text.Ago(now.Sub(c.Reload.At)), c.Reload.Error))
	}
	if len(c.Differs) > 0 {
		what := strings.Join(c.Differs, ", ")
		if n := len(c.Differs); n > 3 {
			what = fmt.Sprintf("%s and %d more files", strings.Join(c.Differs[:3], ", "), n-3)
		}
		mend := ": culvert reload"
		if refused {
			mend = ""
		}
		lines = append(lines, "  configuration  DIFFERS from what is in force: changed since it was read: "+what+mend)
	}
	return lines
}
