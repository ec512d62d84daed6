// SPDX-License-Identifier: Apache-2.0

package doctor

// LostDecap is an interface that had the decapsulation program until it was deleted.
type LostDecap struct {
	Interface string
	// Exists tells whether there is an interface of that name again.
	Exists bool
	// Served tells whether a process attaches the program again when there is.
	Served bool
	// Command attaches the program again, with the same options.
	Command string
}

// checkLostDecaps has a finding for each interface where tunnels do not end any more.
func checkLostDecaps(lost []LostDecap) (found []Finding) {
	for _, d := range lost {
		f := Finding{Status: Fail, Check: "decap-attached", Interface: d.Interface, Command: d.Command}
		const forget = "; 'culvert lb decap del' makes that permanent"
		switch {
		case d.Exists && d.Served:
			f.Finding = "tunnels do not end here any more: the interface was made again and cannot be attached to; the log of the process says why" + forget
		case d.Exists:
			f.Finding = "tunnels do not end here any more: the interface was deleted and made again, and no process attaches to it" + forget
		case d.Served:
			f.Finding = "tunnels do not end here any more: the interface does not exist; the process attaches when it does" + forget
			f.Command = "ip link show " + d.Interface
		default:
			f.Finding = "tunnels do not end here any more: the interface does not exist, and no process waits for it" + forget
		}
		found = append(found, f)
	}
	return found
}

// checkDecaps warns of interfaces that take tunnels from every source.
func checkDecaps(open []string) (found []Finding) {
	for _, name := range open {
		found = append(found, Finding{
			Status: Warn, Check: "decap-open", Interface: name,
			Finding: "takes tunnels from any source, and packets inside with any source and destination pass the firewall",
			Command: "culvert lb decap add " + name + " --from PREFIX --vip ADDR",
		})
	}
	return found
}
