#!/bin/sh
# The first process of the guest: mounts the export with the kernel's own client and runs a suite in it. The root is
# the host's, read-only; settings come as kernel parameters; the last line says how it ended.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
HOME=/root
export PATH HOME
mount -t proc proc /proc
mount -t sysfs sysfs /sys
setting() {
  tr ' ' '\n' </proc/cmdline | sed -n "s/^q_$1=//p"
}
# What has to be writable. /tmp stays the host's: the suite may come from there.
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /mnt
mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm
mkdir -p /mnt/export /mnt/tmp /mnt/host
# A directory of the host that can be written to.
mount -t hostfs -o "$(setting host)" none /mnt/host
TMPDIR=/mnt/tmp
export TMPDIR
ip link set lo up
ip addr add "$(setting guest)/24" dev vec0
ip link set vec0 up
modprobe -d "$(setting modules)" nfsv3
server=$(setting server)
port=$(setting port)
# -i: the kernel does all of it, the MOUNT call too; no helper of another package is needed.
options="vers=3,proto=tcp,nolock,port=$port,mountvers=3,mountproto=tcp,mountport=$(setting mountport),addr=$server"
options="$options$(setting options)"
if mount -i -t nfs -o "$options" "$server:$(setting path)" /mnt/export; then
  echo "kernel: Linux $(uname -r), $options"
  cd /mnt/export && sh "$(setting run)"
  status=$?
  cd /
  umount /mnt/export || status=1
else
  echo "FAILED  mount -o $options"
  status=1
fi
echo "guest: status $status"
sync
echo o >/proc/sysrq-trigger
sleep 10
