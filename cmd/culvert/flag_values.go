// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// timeValue is a flag with a time: a number of seconds, or a number with a unit as in 500ms.
type timeValue time.Duration

// timeFlag adds a flag with a time to a command. A default of 0 is not shown.
func timeFlag(cmd *cobra.Command, to *time.Duration, name string, without time.Duration, usage string) {
	*to = without
	cmd.Flags().Var((*timeValue)(to), name, usage)
}

// Set implements pflag.Value.
func (v *timeValue) Set(text string) error {
	if d, err := time.ParseDuration(text); err == nil {
		*v = timeValue(d)
		return nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(math.Abs(seconds) < float64(math.MaxInt64)/float64(time.Second)) {
		return errors.New("write it in seconds, as 0.5, or with a unit, as 500ms")
	}
	*v = timeValue(seconds * float64(time.Second))
	return nil
}

// String implements pflag.Value.
func (v *timeValue) String() string {
	if *v == 0 {
		return ""
	}
	return time.Duration(*v).String()
}

// Type implements pflag.Value.
func (*timeValue) Type() string { return "time" }

// plainValue says in plain words what is wrong with the value of a flag.
func plainValue(err error) error {
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
