// SPDX-License-Identifier: Apache-2.0

package support

import (
	"regexp"
	"strconv"
	"strings"
)

// blanked takes the place of a secret.
const blanked = `"(blanked)"`

// secretWord matches names of keys that hold secrets, those of culvert's files and of the reference router's, and others that sound
// like it: a key that is blanked without need does no harm.
var secretWord = regexp.MustCompile(`(?i)pass|secret|seed|token|credential|psk|md5|private|(^|[_-])key$`)

// fileWord matches names of keys that hold paths. Paths are no secrets.
var fileWord = regexp.MustCompile(`(?i)(file|dir|path)$`)

// commented matches an assignment of a secret in a comment.
var commented = regexp.MustCompile(`(?i)([A-Za-z0-9_."'-]*(?:pass|secret|seed|token|credential|psk|md5|private|[_-]key)[A-Za-z0-9_."'-]*\s*[=:]\s*)(.*)`)

// isSecret tells whether a key as it is written, such as lb.bgp."password", holds a secret.
func isSecret(key string) bool {
	for _, part := range keyParts(key) {
		if secretWord.MatchString(part) && !fileWord.MatchString(part) {
			return true
		}
	}
	return false
}

// keyParts splits a dotted key of TOML, and undoes quotes.
func keyParts(key string) (parts []string) {
	for key = strings.TrimSpace(key); key != ""; {
		end := strings.IndexByte(key, '.')
		if q := key[0]; q == '"' || q == '\'' {
			end = stringEnd(key)
			part := key[:end]
			if text, err := strconv.Unquote(part); q == '"' && err == nil {
				part = text
			}
			parts = append(parts, strings.Trim(part, `"'`))
		} else {
			if end < 0 {
				end = len(key)
			}
			parts = append(parts, strings.TrimSpace(key[:end]))
		}
		key = strings.TrimLeft(key[end:], ". \t")
	}
	return parts
}

// stringEnd returns the length of the TOML string that s begins with. One that does not end ends with its line, and one of several
// lines with s.
func stringEnd(s string) int {
	q := s[:1]
	if strings.HasPrefix(s, q+q+q) {
		for i := 3; i < len(s); i++ {
			switch {
			case s[i] == '\\' && q == `"`:
				i++
			case strings.HasPrefix(s[i:], q+q+q):
				for i += 3; i < len(s) && s[i] == q[0]; i++ { // up to two more belong to the string
				}
				return i
			}
		}
		return len(s)
	}
	for i := 1; i < len(s) && s[i] != '\n'; i++ {
		switch {
		case s[i] == '\\' && q == `"`:
			i++
		case s[i] == q[0]:
			return i + 1
		}
	}
	if end := strings.IndexByte(s, '\n'); end >= 0 {
		return end
	}
	return len(s)
}

// valueEnd returns the length of the TOML value that s begins with.
func valueEnd(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"', '\'':
			i += stringEnd(s[i:]) - 1
		case '#':
			if depth == 0 {
				return i
			}
			if end := strings.IndexByte(s[i:], '\n'); end >= 0 {
				i += end
			}
		case '[', '{':
			depth++
		case ']', '}':
			if depth == 0 {
				return i
			}
			depth--
		case ',', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return len(s)
}

// blank returns a TOML file without the values of keys that hold secrets, and these values. It reads files with errors too, since
// these are what help is asked for: in doubt it blanks more.
func blank(file string) (text string, secrets []string) {
	var b strings.Builder
	inSecret := false // in a table whose name is that of a secret
	start := 0        // of what may be a key
	for i := 0; i < len(file); {
		switch c := file[i]; {
		case c == '#':
			end := strings.IndexByte(file[i:], '\n')
			if end < 0 {
				end = len(file) - i
			}
			comment := file[i : i+end]
			if m := commented.FindStringSubmatch(comment); m != nil {
				secrets = append(secrets, unquoted(m[2]))
				comment = commented.ReplaceAllString(comment, "${1}"+blanked)
			}
			b.WriteString(comment)
			i += end
		case c == '"' || c == '\'':
			end := stringEnd(file[i:])
			if before := strings.TrimSpace(file[start:i]); isSecret(before) && !strings.ContainsAny(before, "=:") && !strings.HasSuffix(before, ".") { // without the equals sign
				secrets = append(secrets, unquoted(file[i:i+end]))
				b.WriteString(blanked)
			} else {
				b.WriteString(file[i : i+end])
			}
			i += end
		case c == '=' || c == ':': // outside strings TOML has a colon in times alone, behind an equals sign
			key := file[start:i]
			b.WriteByte(c)
			i++
			if !inSecret && !isSecret(key) {
				break
			}
			space := len(file[i:]) - len(strings.TrimLeft(file[i:], " \t"))
			b.WriteString(file[i:i+space] + blanked)
			i += space
			end := valueEnd(file[i:])
			value := strings.TrimRight(file[i:i+end], " \t\r")
			secrets = append(secrets, unquoted(value))
			b.WriteString(file[i+len(value) : i+end])
			i += end
		default:
			if c == '[' && strings.TrimSpace(file[start:i]) == "" {
				if end := strings.IndexByte(file[i:], ']'); end > 0 {
					name := strings.Trim(file[i:i+end], "[] \t")
					inSecret = name != "scion.key" && isSecret(name) // [[scion.key]] names files that hold keys
				}
			}
			if c == '\n' || c == ',' || c == '{' {
				start = i + 1
			}
			b.WriteByte(c)
			i++
		}
	}
	return b.String(), secrets
}

// unquoted returns the text of a TOML string, and other values as they are.
func unquoted(value string) string {
	value = strings.TrimSpace(value)
	if text, err := strconv.Unquote(value); err == nil {
		return text
	}
	return strings.Trim(value, "\"' \t\r\n")
}

// leastSecret is the length from which on a secret is looked for in other parts: shorter ones would be found everywhere.
const leastSecret = 4

// without returns a text without secrets that were found elsewhere.
func without(text string, secrets []string) string {
	for _, s := range secrets {
		if len(s) >= leastSecret {
			text = strings.ReplaceAll(text, s, "(blanked)")
		}
	}
	return text
}
