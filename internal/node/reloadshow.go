// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"culvert/internal/api"
	"culvert/internal/config"
	"culvert/internal/show"
	"culvert/internal/show/text"
)

// ShowReload asks a process to read its configuration again (Reload). It writes what has changed, or with DryRun would change, to
// out, and the errors of a refusal to errs, each in a line. With asJSON, out gets both.
func ShowReload(ctx context.Context, which Which, r Request, asJSON bool, out, errs io.Writer) error {
	answer, err := Reload(ctx, which, r)
	all := config.All(err)
	positions := false
	for _, one := range all {
		var at *config.Error
		positions = positions || errors.As(one, &at)
	}
	if answer == nil {
		answer = &api.Reloaded{Changes: []string{}, Notes: []string{}}
	}
	if asJSON {
		if err := show.JSON(out, ReloadAnswer{OK: err == nil, Reloaded: *answer, Errors: checkedErrors(all)}); err != nil {
			return err
		}
	}
	switch {
	case err == nil && !asJSON:
		return show.Lines(out, reloadLines(answer, r, time.Now()))
	case err == nil:
		return nil
	case len(all) == 1 && !positions:
		return err
	}
	if !asJSON {
		for _, one := range all {
			fmt.Fprintln(errs, one)
		}
	}
	return fmt.Errorf("refused: %s; what was in force goes on", text.Count(uint64(len(all)), "error"))
}

// ReloadAnswer is the output of 'culvert reload -j'.
type ReloadAnswer struct {
	// OK tells whether it is in force, or would be.
	OK bool `json:"ok"`
	api.Reloaded
	Errors []api.Place `json:"errors"`
}

// reloadLines says for people what the answer to a request means.
func reloadLines(r *api.Reloaded, request Request, now time.Time) (lines []string) {
	for _, note := range r.Notes {
		lines = append(lines, "note: "+note)
	}
	switch n := len(r.Changes); {
	case request.Keep:
		return append(lines, r.Name+": the configuration is kept")
	case r.DryRun && n == 0:
		return append(lines, fmt.Sprintf("%s: %s changes nothing", r.Name, r.File))
	case r.DryRun:
		lines = append(lines, fmt.Sprintf("%s: %s would change, and nothing was touched:", r.Name, r.File))
	case n == 0:
		lines = append(lines, fmt.Sprintf("%s: %s was read again and changes nothing (%d ms)", r.Name, r.File, r.Milliseconds))
	default:
		how := "the program stays"
		if r.NewProgram {
			how = "a new program"
		}
		lines = append(lines, fmt.Sprintf("%s: %s is in force (%d ms, %s):", r.Name, r.File, r.Milliseconds, how))
	}
	for _, change := range r.Changes {
		lines = append(lines, "  "+change)
	}
	if r.Until != nil {
		lines = append(lines, fmt.Sprintf("it goes back in %.0f s unless you keep it: culvert reload --keep", max(r.Until.Sub(now).Seconds(), 0)))
	}
	return lines
}
