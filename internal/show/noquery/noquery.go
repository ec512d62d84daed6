// SPDX-License-Identifier: Apache-2.0

// Package noquery keeps bubbletea from asking the terminal for its colours, which it otherwise does
// at the start of every command, also of those that have no full-screen table: stray bytes in the
// output, and seconds of waiting where nothing answers.
//
// It works because it is initialised before bubbletea: of the packages whose imports are ready, Go
// initialises the first by import path (Go 1.21 release notes).
package noquery

import "github.com/charmbracelet/lipgloss"

func init() { lipgloss.SetHasDarkBackground(true) }
