// SPDX-License-Identifier: Apache-2.0

/*
Package datapath is the engine of a data plane: one XDP program, the pipeline, with its maps on a set of interfaces. The
engine loads the pipeline, attaches it, pins it, adopts a running data plane, swaps programs under load and reads what they
count. It knows no stage. A stage takes part through an implementation of [Part], which lives in the package of the stage.

# Attach

[Attach] brings a data plane up. If a data plane of the same name runs in the network namespace, Attach adopts it: the new
program replaces the old one on each interface atomically, and counters and shared maps go on. Attach calls the parts in this
order; within a step, in the order of Options.Parts:

 1. Part.Check and Part.State: nothing in the kernel has been touched.
 2. Part.Load sizes maps and sets constants, and Part.Shared names the maps to share with the old program.
 3. The pipeline is loaded and its counters, limits and interfaces are written.
 4. Part.Fill writes the stage's maps, and PortFiller.FillPort its members of struct port.
 5. Program and maps are pinned. From here on the old program and the new one both exist, and the old one still runs.
 6. Fronted.Rebuild makes the programs in front of the new pipeline, from the last of Options.Parts to the first.
 7. Adopter.Adopt copies from maps that the old program is still writing.
 8. The interfaces swap to the new program, one by one. Options.Begin runs.
 9. Adopter.Adopt runs once more, and the pins of the old generation go.

An error before step 9 undoes all steps: the interfaces carry what they carried before. Shared maps are the exception. The
old program reads them, so that whatever a part writes there is in force at once and is not undone.

# A process that reads its configuration again

[Instance.Fits] tells whether the program that runs does for other options. If so, [Instance.Recommit] changes maps and
programs in front while packets flow. If not, Attach with Options.Former makes a new generation in the process that serves the
former one, which goes on serving if Attach fails.

# Generations

Each Attach makes a generation: a numbered directory with the pins of a program and its maps. The links, one pinned for each
interface, say which generation is in force. A process may die at any moment: programs and the maps that they use stay
together, and the next Attach removes what is left over. store.go lists the pins.

# Programs in front

A part that has to see packets before the pipeline parses them has a program of its own in front of it: to drop packets
early, or to strip outer headers. Such a part is [Fronted]. Packets meet these programs in the order of
Options.Parts. Each goes on to the next one by a tail call, and the last one to rx, the entry of the pipeline. The engine
pins these programs and chains them. [Instance.EditFront] replaces one of them while packets flow.

# Locks

Three locks keep writers apart:

  - A lock on the instance's directory belongs to the process that serves the data plane, from Attach to Close.
  - The edit lock is held while interfaces, maps or programs in front change. Attach, [Instance.Detach], [Instance.Edit],
    [Instance.EditFront] and [Instance.Recommit] take it, in any process.
  - [Instance.Locked] and [Instance.EditPort] exclude other goroutines of this process.
*/
package datapath
