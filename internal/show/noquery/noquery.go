// SPDX-License-Identifier: Apache-2.0

// Package noquery keeps bubbletea from asking the terminal for its background color. bubbletea asks at the start of every
// command, even of those without a full-screen table. The question puts stray bytes into the output, and a terminal that does
// not answer makes the command wait for seconds.
//
// The package works because Go initialises it before bubbletea: among the packages whose imports are initialised, Go takes
// the first one by import path (Go 1.21 release notes).
package noquery

import "github.com/charmbracelet/lipgloss"

func init() { lipgloss.SetHasDarkBackground(true) }
