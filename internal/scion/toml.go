// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/scionproto/scion/pkg/log"
	scionconfig "github.com/scionproto/scion/private/config"
	"github.com/scionproto/scion/router/config"

	"culvert/internal/config/tomltext"
)

// loadTOML reads the reference router's configuration file with that router's own decoder,
// defaults and validation.
func loadTOML(path string) (config.Config, error) {
	var cfg config.Config
	raw, err := os.ReadFile(path)
	if err != nil {
		return cfg, cannotRead(path, err)
	}
	if err := scionconfig.Decode(raw, &cfg); err != nil {
		return cfg, tomlError(path, err)
	}
	cfg.InitDefaults()
	if err := checkTOML(path, &cfg); err != nil {
		return cfg, err
	}
	if err := cfg.Validate(); err != nil {
		return cfg, &fileError{file: path, cause: errors.New(oneLine(err))}
	}
	return cfg, nil
}

// tomlError turns an error of the decoder into one that names the line and the key.
func tomlError(path string, err error) error {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		first := strict.Errors[0]
		row, column := first.Position()
		return atPosition(badField(path)(fmt.Sprintf("line %d: %s", row, strings.Join(first.Key(), ".")),
			"unknown key%s: remove it or correct its name", tomltext.DidYouMean(config.Config{}, first.Key())), row, column)
	}
	var decode *toml.DecodeError
	if errors.As(err, &decode) {
		row, column := decode.Position()
		field := fmt.Sprintf("line %d", row)
		if key := decode.Key(); len(key) > 0 {
			field += ": " + strings.Join(key, ".")
		}
		return atPosition(badField(path)(field, "%s", tomltext.Plain(decode)), row, column)
	}
	return &fileError{file: path, cause: errors.New(tomltext.Plain(err))}
}

// checkTOML refuses what Validate would refuse, with an error that names the field.
func checkTOML(path string, cfg *config.Config) error {
	bad := badField(path)
	if cfg.General.ID == "" {
		return bad("general.id", "not set: write the router's name in the topology")
	}
	if dir := cfg.General.ConfigDir; dir != "" {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return bad("general.config_dir", "no directory %s", dir)
		case err != nil:
			return bad("general.config_dir", "%v", err)
		case !info.IsDir():
			return bad("general.config_dir", "%s is not a directory", dir)
		}
	}
	if err := checkLogging(bad, cfg.Logging.Console); err != nil {
		return err
	}
	return checkRouterSection(bad, &cfg.Router)
}

// checkLogging refuses levels that the reference's log does not know.
func checkLogging(bad func(string, string, ...any) error, c log.ConsoleConfig) error {
	levels := []string{"debug", "info", "warn", "error", "dpanic", "panic", "fatal"}
	if !slices.Contains(levels, strings.ToLower(c.Level)) {
		return bad("log.console.level", "%q: use debug, info, warn or error", c.Level)
	}
	if !slices.Contains(append(levels, "none"), strings.ToLower(c.StacktraceLevel)) {
		return bad("log.console.stacktrace_level", "%q: use none, debug, info, warn or error", c.StacktraceLevel)
	}
	return nil
}

func checkRouterSection(bad func(string, string, ...any) error, r *config.RouterConfig) error {
	for _, c := range []struct {
		key        string
		value, min int
	}{
		{"receive_buffer_size", r.ReceiveBufferSize, 0},
		{"send_buffer_size", r.SendBufferSize, 0},
		{"batch_size", r.BatchSize, 1},
		{"num_processors", r.NumProcessors, 0},
		{"num_slow_processors", r.NumSlowPathProcessors, 1},
	} {
		if c.value < c.min {
			return bad("router."+c.key, "%d is below %d", c.value, c.min)
		}
	}
	start, end := r.DispatchedPortStart, r.DispatchedPortEnd
	switch {
	case start == nil && end == nil:
		return nil
	case start == nil:
		return bad("router.dispatched_port_start", "not set though dispatched_port_end is: set both or none")
	case end == nil:
		return bad("router.dispatched_port_end", "not set though dispatched_port_start is: set both or none")
	case *start < 0:
		return bad("router.dispatched_port_start", "%d is not a port: use 0 to 65535", *start)
	case *end > 65535:
		return bad("router.dispatched_port_end", "%d is not a port: use 0 to 65535", *end)
	case *start > *end:
		return bad("router.dispatched_port_start", "%d is above dispatched_port_end, which is %d", *start, *end)
	}
	return nil
}
