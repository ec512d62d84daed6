// SPDX-License-Identifier: Apache-2.0

package tomltext

import (
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Unquoted returns an error message for a document that the decoder refuses at row and col, which count from 1, because the
// value there is a word without quotes. It returns "" if something else is wrong.
func Unquoted(document []byte, row, col int) string {
	lines := strings.Split(string(document), "\n")
	if row < 1 || row > len(lines) {
		return ""
	}
	line := lines[row-1]
	start := min(max(col-1, 0), len(line))
	for start > 0 && isWordChar(line[start-1]) {
		start--
	}
	end := start
	for end < len(line) && isWordChar(line[end]) {
		end++
	}
	word, before := line[start:end], strings.TrimSpace(line[:start])
	if word == "" || strings.ContainsAny(before, "#\"'") && inCommentOrQuotes(before) {
		return ""
	}
	after := strings.TrimSpace(line[end:])
	switch {
	case strings.HasSuffix(before, "="), strings.HasSuffix(before, "[") && strings.Contains(before, "="):
	case before == "" || strings.HasSuffix(before, ","): // possibly a line of a list
		if after != "" && !strings.ContainsAny(after[:1], ",]#") {
			return ""
		}
	default:
		return ""
	}
	var value struct{ X any }
	if toml.Unmarshal([]byte("X = "+word), &value) == nil {
		return ""
	}
	if low := strings.ToLower(word); low == "true" || low == "false" {
		return fmt.Sprintf("%s is not a value: write %s", word, low)
	}
	return fmt.Sprintf("%s is not quoted: write %q", word, word)
}

// inCommentOrQuotes tells whether the end of a text is inside a comment or inside quotes.
func inCommentOrQuotes(text string) bool {
	var quote byte
	for n := range len(text) {
		switch c := text[n]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '#':
			return true
		case c == '"' || c == '\'':
			quote = c
		}
	}
	return quote != 0
}

func isWordChar(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_.:/@%+-", c) >= 0
}
