// SPDX-License-Identifier: Apache-2.0

// Package tomltext rewrites errors of the TOML decoder for people who do not know Go.
package tomltext

import (
	"regexp"
	"strings"
)

var (
	wrongType  = regexp.MustCompile(`cannot decode TOML (.+?) into (?:.* of type )?(\S+)$`)
	outOfRange = regexp.MustCompile(`integer value (-?\d+) cannot be stored in (\S+)$`)
	badAddr    = regexp.MustCompile(`ParseAddr\((".*?")\): .*$`)
	badTime    = regexp.MustCompile(`Invalid duration string \{val=(.*)\}$`)
)

// ranges has the values of the small integer types.
var ranges = map[string]string{
	"int8": "-128 to 127", "int16": "-32768 to 32767",
	"uint8": "0 to 255", "uint16": "0 to 65535", "uint32": "0 to 4294967295",
}

// Plain returns the text of a decoder's error in one line and without the names of Go types.
func Plain(err error) string {
	text := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "toml: ")
	if m := wrongType.FindStringSubmatch(text); m != nil {
		return "want " + Want(m[2]) + ", found " + m[1]
	}
	if m := outOfRange.FindStringSubmatch(text); m != nil {
		if r, ok := ranges[m[2]]; ok {
			return m[1] + " is out of range: use " + r
		}
		return m[1] + " is out of range"
	}
	if m := badTime.FindStringSubmatch(text); m != nil {
		return `"` + m[1] + `" is not a duration: write it as "200ms"`
	}
	if m := badAddr.FindStringSubmatch(text); m != nil {
		return m[1] + " is no address"
	}
	return text
}

// Want describes the values that a field of a Go type takes.
func Want(goType string) string {
	goType = strings.TrimLeft(goType, "*")
	switch {
	case goType == "bool":
		return "true or false"
	case goType == "string":
		return "text in quotes"
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"), goType == "iface.ID":
		return "a whole number"
	case strings.HasPrefix(goType, "float"):
		return "a number"
	case goType == "util.DurWrap":
		return `a duration as "200ms"`
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	default:
		return "a table"
	}
}
