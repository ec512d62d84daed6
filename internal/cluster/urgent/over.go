// SPDX-License-Identifier: Apache-2.0

package urgent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"culvert/internal/cluster/agent"
	"culvert/internal/cluster/lastgood"
)

// ReadOver returns the urgent changes whose time was over, as WriteOver has stored them. Unlike the journal they are of use after a start of
// the machine.
func ReadOver(path string) (all []agent.Over, err error) {
	text, err := lastgood.ReadSealed(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read, so that urgent changes whose time is over may come back: %w: see 'culvert fleet urgent'", path, err)
	}
	return all, nil
}

// WriteOver stores the urgent changes whose time is over.
func WriteOver(path string, all []agent.Over) error {
	text, err := json.Marshal(all)
	if err == nil {
		err = lastgood.WriteSealed(path, text)
	}
	if err != nil {
		return fmt.Errorf("noting which urgent changes are over: %w", err)
	}
	return nil
}
