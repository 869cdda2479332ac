# Run a command as the image runs it: another user, no capability, a read-only root, one volume.
#   unshare --mount --pid --fork --net sh as_image.sh ENVIRONMENT PYTHON_PREFIX COMMAND...
# Nothing outside of this mount namespace changes, and everything in it ends with this process.
set -eu
environment=$1 prefix=$2
shift 2
mount --make-rprivate /
mount -t proc none /proc
mount -t tmpfs -o mode=755 none /mnt
mkdir /mnt/env /mnt/python /mnt/data
mount --bind "$environment" /mnt/env
mount --bind "$prefix" /mnt/python
chown 10001:10001 /mnt/data
ip link set lo up
for place in / /mnt/env /mnt/python /tmp /var/tmp; do
  ! mountpoint -q "$place" || mount -o remount,bind,ro "$place"
done
cd /mnt/data
packages=$(echo /mnt/env/lib/python3*/site-packages)
exec setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --bounding-set=-all \
  env -i PATH=/mnt/python/bin:/usr/bin:/bin HOME=/mnt/data PYTHONPATH="$packages" \
  LD_LIBRARY_PATH=/mnt/python/lib PYTHONDONTWRITEBYTECODE=1 \
  LIGHTGATE_CONSOLE_SECRET="$LIGHTGATE_CONSOLE_SECRET" LIGHTGATE_FIRST_KEY="$LIGHTGATE_FIRST_KEY" \
  "$@"
