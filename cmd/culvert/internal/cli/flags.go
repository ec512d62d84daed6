// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"culvert/internal/show/dump"
	"culvert/internal/show/usage"
)

// DefaultConfig is the path of the configuration for commands that need one and are given none.
const DefaultConfig = "/etc/culvert/culvert.toml"

// ConfigFlag adds -c, the path of a configuration. without is the path if the flag is not given, "" for no configuration.
func ConfigFlag(cmd *cobra.Command, file *string, without, usage string) {
	cmd.Flags().StringVarP(file, "config", "c", without, usage)
	CompleteFileFlag(cmd, "config", "toml")
}

// HaveConfig returns a usage error if no configuration is named and there is no default one.
func HaveConfig(cmd *cobra.Command, file string) error {
	if cmd.Flags().Changed("config") || IsFile(file) {
		return nil
	}
	return usage.Error(fmt.Errorf("no configuration: there is no %s, and none is given with -c FILE", file))
}

// IsFile tells whether there is a file at a path.
func IsFile(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// FileByFlag refuses arguments. Users may give a command its configuration as an argument by mistake, so the error names -c.
func FileByFlag(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage.Error(fmt.Errorf("give the file with -c: %s -c %s", cmd.CommandPath(), args[0]))
	}
	return nil
}

// OnFlag adds --on, the name of a data plane, to a command that works on one. names completes it.
func OnFlag(cmd *cobra.Command, on *string, names func() []string) {
	dataPlaneFlag(cmd, on, names, "the data plane `NAME` (default: the only suitable one)")
}

// OnlyFlag adds --on to a command that shows all data planes unless one is named.
func OnlyFlag(cmd *cobra.Command, on *string, names func() []string) {
	dataPlaneFlag(cmd, on, names, "show only the data plane `NAME` (default: all)")
}

func dataPlaneFlag(cmd *cobra.Command, on *string, names func() []string, usage string) {
	cmd.Flags().StringVar(on, "on", "", usage)
	CompleteFlag(cmd, "on", func([]string) []string { return names() })
}

// IncomingFlag adds -i, the interface by which a packet comes in that the command judges.
func IncomingFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVarP(name, "interface", "i", "", "the packets come in by the interface `IFACE`")
	CompleteFlag(cmd, "interface", HostInterfaces)
}

// VerboseFlag adds -v, which explains each reason in a sentence.
func VerboseFlag(cmd *cobra.Command, verbose *bool) {
	cmd.Flags().BoolVarP(verbose, "verbose", "v", false, "explain each reason in a sentence")
}

// WatchFlags adds the interval of a live view, and -n, after how many intervals it ends.
func WatchFlags(cmd *cobra.Command, interval *time.Duration, count *int) {
	TimeFlag(cmd, interval, "interval", time.Second, "update every `TIME`, in seconds or as 500ms, at least 0.1")
	cmd.Flags().VarP((*countValue)(count), "count", "n", "print lines, and stop after `N` intervals (default: no end)")
}

// countValue is a flag with a number of 1 or more. It is 0 if the flag is not given.
type countValue int

// Set implements pflag.Value.
func (v *countValue) Set(text string) error {
	n, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return err
	case n < 1:
		return errors.New("use 1 or more, or leave it out for no end")
	}
	*v = countValue(n)
	return nil
}

// String implements pflag.Value.
func (v *countValue) String() string {
	if *v == 0 {
		return ""
	}
	return strconv.Itoa(int(*v))
}

// Type implements pflag.Value.
func (*countValue) Type() string { return "int" }

// DumpFlags adds the flags that say what is in a dump.
func DumpFlags(cmd *cobra.Command, o *dump.Options) {
	cmd.Flags().BoolVar(&o.ByHand, "by-hand", false, "only what was made by hand, as a drop-in")
	cmd.Flags().BoolVar(&o.Tables, "tables", false, "only the tables, without name, mode and interfaces of the data plane")
}

// TimeValue is a flag with a time: a number of seconds, or a number with a unit as in 500ms.
type TimeValue time.Duration

// TimeFlag adds a flag with a time to a command. A default of 0 is not shown.
func TimeFlag(cmd *cobra.Command, to *time.Duration, name string, without time.Duration, usage string) {
	*to = without
	cmd.Flags().Var((*TimeValue)(to), name, usage)
}

// Set implements pflag.Value.
func (v *TimeValue) Set(text string) error {
	if d, err := time.ParseDuration(text); err == nil {
		*v = TimeValue(d)
		return nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(math.Abs(seconds) < float64(math.MaxInt64)/float64(time.Second)) {
		return errors.New("write it in seconds, as 0.5, or with a unit, as 500ms")
	}
	*v = TimeValue(seconds * float64(time.Second))
	return nil
}

// String implements pflag.Value.
func (v *TimeValue) String() string {
	if *v == 0 {
		return ""
	}
	return time.Duration(*v).String()
}

// Type implements pflag.Value.
func (*TimeValue) Type() string { return "time" }

// PlainValue says in plain words what is wrong with the value of a flag.
func PlainValue(err error) error {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &invalid) || !errors.As(err, &number) {
		return err
	}
	want := "write a whole number"
	switch {
	case errors.Is(number, strconv.ErrRange):
		want = "the number is out of range"
	case number.Func == "ParseFloat":
		want = "write a number"
	case number.Func == "ParseUint":
		want = "write a whole number of 0 or more"
	case number.Func == "ParseBool":
		want = "write true or false"
	}
	name := "--" + invalid.GetFlag().Name
	if s := invalid.GetFlag().Shorthand; s != "" {
		name = "-" + s + ", " + name
	}
	return fmt.Errorf("invalid argument %q for %q flag: %s", invalid.GetValue(), name, want)
}
