// SPDX-License-Identifier: Apache-2.0

package doctor

// checkDecaps warns of interfaces where anybody's tunnels end.
func checkDecaps(open []string) (found []Finding) {
	for _, name := range open {
		found = append(found, Finding{
			Status: Warn, Check: "decap-open", Interface: name,
			Finding: "takes tunnels from anybody, with packets of any source and destination in them, past the firewall",
			Command: "culvert lb decap " + name + " --from PREFIX --vip ADDR",
		})
	}
	return found
}
