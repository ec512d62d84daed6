// SPDX-License-Identifier: Apache-2.0

package route

import "time"

// overrunQuiet is how long no notification may be lost before the log says that the tables have been read again.
const overrunQuiet = time.Second

// overrun handles the loss of notifications: the mirror is out of use until a new dump is complete.
func (f *feed) overrun() {
	f.overruns++
	f.abortDump()
	for i := range f.trustFrom {
		f.trustFrom[i] = f.dump.serial + 1
	}
	for i := range f.rulesDirty {
		f.rulesDefault[i], f.rulesDirty[i] = false, true
	}
	f.lastOverrun = f.now()
	if !f.behind {
		f.behind = true
		f.log.Warn("notifications of the kernel were lost: packets ask the kernel until the tables have been read again")
	}
	// Do not wait for dumpGap, since the mirror is out of use.
	f.dumpAtOnce = true
	f.withdraw()
}

// logCaughtUp logs that the tables have been read again after an overrun. Overruns that follow each other within overrunQuiet
// are one episode, so the log gets two lines for all of them.
func (f *feed) logCaughtUp() {
	if f.behind && f.inUse(0) && f.inUse(1) && f.now()-f.lastOverrun >= overrunQuiet {
		f.behind = false
		f.log.Info("the tables of the kernel have been read again after notifications were lost", "overruns", f.overruns, "dumps", f.dumps)
	}
}
