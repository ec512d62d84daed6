// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const bpffsPath = "/sys/fs/bpf"

// bpffsRoots are the places where culvert looks for its pins: here, and where the host's first process
// has them. 'ip netns exec' hides those of the host behind a fresh /sys.
var bpffsRoots = []string{bpffsPath, "/proc/1/root" + bpffsPath}

// bpffs is what is known of the file system that holds the pins.
type bpffs struct {
	mounted  bool // here, at bpffsPath
	readOnly bool
	// elsewhere is true when the host's first process sees it and we do not.
	elsewhere bool
	// supported is true when the kernel can mount one.
	supported bool
	// mountable is true when culvert may do that itself.
	mountable bool
}

func readBPFFS(capabilities uint64) bpffs {
	b := bpffs{supported: kernelHasFS("bpf"), mountable: capabilities&(1<<unix.CAP_SYS_ADMIN) != 0}
	var st unix.Statfs_t
	if unix.Statfs(bpffsPath, &st) == nil && st.Type == unix.BPF_FS_MAGIC {
		b.mounted = true
		b.readOnly = st.Flags&unix.ST_RDONLY != 0
		return b
	}
	b.elsewhere = unix.Statfs("/proc/1/root"+bpffsPath, &st) == nil && st.Type == unix.BPF_FS_MAGIC
	return b
}

// kernelHasFS looks into /proc/filesystems.
func kernelHasFS(name string) bool {
	f, err := os.Open("/proc/filesystems")
	if err != nil {
		return false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 0 && fields[len(fields)-1] == name {
			return true
		}
	}
	return false
}

func checkBPFFS(b bpffs) Finding {
	f := Finding{Check: "bpffs"}
	switch {
	case b.mounted && b.readOnly:
		f.Status = Fail
		f.Finding = "mounted read-only at " + bpffsPath + ": nothing can be pinned"
		f.Command = "mount -o remount,rw " + bpffsPath
	case b.mounted:
		f.Finding = "mounted at " + bpffsPath
	case b.elsewhere:
		f.Finding = "hidden here, as by 'ip netns exec'; culvert reaches the host's through /proc/1/root"
	case b.supported && b.mountable:
		f.Finding = "not mounted yet; culvert mounts it at " + bpffsPath + " when it attaches"
	case b.supported:
		f.Status = Fail
		f.Finding = "not mounted, and without CAP_SYS_ADMIN culvert cannot mount it"
		f.Command = "sudo mount -t bpf bpf " + bpffsPath
	default:
		f.Status = Fail
		f.Finding = "this kernel has none (CONFIG_BPF_SYSCALL): programs cannot be pinned"
	}
	return f
}
