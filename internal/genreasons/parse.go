// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// parse returns the reasons of a reasons.h: the entries R(VERDICT, NAME, "sentence") of its macro NAME_REASONS(R), where NAME
// is the folder in upper case. How they are laid out on lines does not matter, nor do comments. Sentences may be in several
// literals, as in C. Errors do not name the file.
func parse(folder, header string) ([]reason, error) {
	macro := strings.ToUpper(folder) + "_REASONS"
	want := fmt.Sprintf(`write #define %s(R) and an entry R(VERDICT, NAME, "sentence") for each reason`, macro)
	header, err := uncomment(strings.ReplaceAll(strings.ReplaceAll(header, "\r\n", "\n"), "\\\n", " "))
	if err != nil {
		return nil, err
	}
	m := regexp.MustCompile(`(?m)^[ \t]*#[ \t]*define[ \t]+` + macro + `\([ \t]*(\w+)[ \t]*\)(.*)$`).FindStringSubmatch(header)
	if m == nil {
		return nil, fmt.Errorf("no macro %s(R): %s", macro, want)
	}
	entry, err := regexp.Compile(`^` + m[1] + `\s*\(\s*([A-Z]+)\s*,\s*([A-Z0-9_]+)\s*,\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\)`)
	if err != nil {
		return nil, err
	}
	var reasons []reason
	for rest := strings.TrimSpace(m[2]); rest != ""; {
		e := entry.FindStringSubmatch(rest)
		if e == nil {
			return nil, fmt.Errorf("%s: no entry begins with %.60q: %s", macro, rest, want)
		}
		text, err := sentence(e[3])
		if err != nil {
			return nil, fmt.Errorf("%s: reason %s_%s: %w", macro, e[1], e[2], err)
		}
		reasons = append(reasons, reason{e[1], e[2], text})
		rest = strings.TrimSpace(rest[len(e[0]):])
	}
	if len(reasons) == 0 {
		return nil, fmt.Errorf("%s has no reasons: %s", macro, want)
	}
	return reasons, nil
}

// literal matches a string of C.
var literal = regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"`)

// sentence joins string literals that follow each other.
func sentence(literals string) (string, error) {
	var text strings.Builder
	for _, l := range literal.FindAllString(literals, -1) {
		s, err := strconv.Unquote(l)
		if err != nil {
			return "", fmt.Errorf("string %s: use no escapes but \\\" and \\\\", l)
		}
		text.WriteString(s)
	}
	if strings.TrimSpace(text.String()) == "" {
		return "", fmt.Errorf("no sentence that explains it to users")
	}
	return text.String(), nil
}

// uncomment replaces each comment of C outside strings by a space.
func uncomment(code string) (string, error) {
	var out strings.Builder
	for code != "" {
		n := strings.IndexAny(code, `"/`)
		if n < 0 {
			break
		}
		out.WriteString(code[:n])
		code = code[n:]
		switch end := 0; {
		case code[0] == '"':
			at := literal.FindStringIndex(code)
			if at == nil || at[0] != 0 {
				return "", fmt.Errorf("a string without an end: %.60q", code)
			}
			out.WriteString(code[:at[1]])
			code = code[at[1]:]
		case strings.HasPrefix(code, "//"):
			if end = strings.IndexByte(code, '\n'); end < 0 {
				end = len(code)
			}
			code = code[end:]
		case strings.HasPrefix(code, "/*"):
			if end = strings.Index(code, "*/"); end < 0 {
				return "", fmt.Errorf("a comment without an end: %.60q", code)
			}
			out.WriteByte(' ')
			code = code[end+len("*/"):]
		default:
			out.WriteByte('/')
			code = code[1:]
		}
	}
	return out.String() + code, nil
}
