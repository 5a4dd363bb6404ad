# Starts a portmapper where only this server sees it, and becomes NFS-Ganesha. Its argument is a directory with
# `ganesha.conf`; it is run as root, with mounts and processes of its own.
mount -t tmpfs tmpfs /run && mkdir /run/rpcbind || exit 1
unshare -n rpcbind -f 2>"$1/rpcbind.log" &
i=0; while [ ! -S /run/rpcbind.sock ] && [ $i -lt 100 ]; do sleep 0.05; i=$((i+1)); done
exec ganesha.nfsd -F -f "$1/ganesha.conf" -L "$1/ganesha.log" -p /run/ganesha.pid -N CRIT
