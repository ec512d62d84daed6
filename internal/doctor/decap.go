// SPDX-License-Identifier: Apache-2.0

package doctor

// LostDecap is an interface at which tunnels ended until it was deleted.
type LostDecap struct {
	Interface string
	// Exists tells whether there is an interface of that name again, Served whether a process attaches to it then.
	Exists, Served bool
	// Command attaches what was there.
	Command string
}

// checkLostDecaps says where tunnels do not end any more.
func checkLostDecaps(lost []LostDecap) (found []Finding) {
	for _, d := range lost {
		f := Finding{Status: Fail, Check: "decap-attached", Interface: d.Interface, Command: d.Command}
		const forget = "; 'culvert lb decap del' if they are not to end there any more"
		switch {
		case d.Exists && d.Served:
			f.Finding = "no tunnel ends here, though some did: it was made again and cannot be attached to; the log of the process says why" + forget
		case d.Exists:
			f.Finding = "no tunnel ends here, though some did: it was deleted and made again, and no process attaches to it" + forget
		case d.Served:
			f.Finding = "no tunnel ends here, though some did: it does not exist; the process attaches when it does" + forget
			f.Command = "ip link show " + d.Interface
		default:
			f.Finding = "no tunnel ends here, though some did: it does not exist, and no process waits for it" + forget
		}
		found = append(found, f)
	}
	return found
}

// checkDecaps warns of interfaces where anybody's tunnels end.
func checkDecaps(open []string) (found []Finding) {
	for _, name := range open {
		found = append(found, Finding{
			Status: Warn, Check: "decap-open", Interface: name,
			Finding: "takes tunnels from anybody, with packets of any source and destination in them, past the firewall",
			Command: "culvert lb decap add " + name + " --from PREFIX --vip ADDR",
		})
	}
	return found
}
