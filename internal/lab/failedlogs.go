// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"path/filepath"
)

// failedLogsDir returns the directory with the logs of a lab that failed to come up. No lab has a name with a dot.
func failedLogsDir(name string) string { return filepath.Join(stateDir, name+".failed") }

func hasFailedLogs(name string) bool {
	_, err := os.Stat(failedLogsDir(name))
	return err == nil
}

func removeFailedLogs(name string) error {
	if err := os.RemoveAll(failedLogsDir(name)); err != nil {
		return fmt.Errorf("remove the logs of a lab %s that failed to come up: %w", name, err)
	}
	return nil
}

// keepLogs moves the logs out of the lab's directory, if there are any. The processes have ended.
func (l *Lab) keepLogs() error {
	logs := filepath.Join(l.Dir, "logs")
	files, err := os.ReadDir(logs)
	if err != nil || len(files) == 0 {
		return nil
	}
	if err := removeFailedLogs(l.Name); err != nil {
		return err
	}
	if err := os.Rename(logs, failedLogsDir(l.Name)); err != nil {
		return fmt.Errorf("keep the logs: %w", err)
	}
	return nil
}
