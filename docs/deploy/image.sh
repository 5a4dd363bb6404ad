#!/bin/sh
# Builds an OCI image that contains the program `quorate` and the libraries that it needs, nothing else:
#
#   docs/deploy/image.sh target/dist/quorate quorate.tar
#   podman load -i quorate.tar        (or: docker load -i quorate.tar)
#
# The image runs as user 10001 and needs no writable root file system. Mount the directories of nodes below /data.
set -eu
program=$1 image=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root blobs=$work/image/blobs/sha256
mkdir -p "$root/usr/bin" "$root/etc" "$root/tmp" "$root/dev" "$root/proc" "$root/sys" "$blobs" "$work/own/data"

cp "$program" "$root/usr/bin/quorate"
for library in $(ldd "$program" | grep -o '/[^ ]*'); do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done
echo 'quorate:x:10001:10001::/data:/usr/bin/quorate' >"$root/etc/passwd"
echo 'quorate:x:10001:' >"$root/etc/group"

# The same input gives the same image.
pack() { tar --sort=name --mtime=@0 --numeric-owner "$@"; }
pack --owner=0 --group=0 -cf "$work/layer.tar" -C "$root" .
pack --owner=10001 --group=10001 -rf "$work/layer.tar" -C "$work/own" ./data

# Moves a file into the directory of blobs, and prints its descriptor.
blob() {
  hash=$(sha256sum <"$1" | cut -d' ' -f1)
  printf '{"mediaType":"application/vnd.oci.image.%s","digest":"sha256:%s","size":%s}' "$2" "$hash" "$(wc -c <"$1")"
  mv "$1" "$blobs/$hash"
}
case $(uname -m) in
  aarch64) architecture=arm64 ;;
  *) architecture=amd64 ;;
esac
layer_hash=$(sha256sum <"$work/layer.tar" | cut -d' ' -f1)
cat >"$work/config.json" <<JSON
{"architecture":"$architecture","os":"linux","config":{"User":"10001:10001","Entrypoint":["/usr/bin/quorate"],
"WorkingDir":"/data","Env":["QUORATE_LOG_FORMAT=json"],"StopSignal":"SIGTERM"},
"rootfs":{"type":"layers","diff_ids":["sha256:$layer_hash"]}}
JSON
config=$(blob "$work/config.json" config.v1+json)
layer=$(blob "$work/layer.tar" layer.v1.tar)
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s,"layers":[%s]}' \
  "$config" "$layer" >"$work/manifest.json"
manifest=$(blob "$work/manifest.json" manifest.v1+json)
name='"annotations":{"org.opencontainers.image.ref.name":"latest","io.containerd.image.name":"docker.io/library/quorate:latest"}'
printf '{"schemaVersion":2,"manifests":[%s,%s}]}' "${manifest%\}}" "$name" >"$work/image/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$work/image/oci-layout"
pack -cf "$image" -C "$work/image" .
