#!/bin/sh
# Runs a program on a machine with several others behind a slow switch, all made of network namespaces:
#
#   PROGRAM=build/hybridop HOSTS=4 RATE=100mbit tests/cluster/hosts.sh ARGUMENT...
#
# The program sees this file system and the addresses 10.77.0.254 (its own) and 10.77.0.1, .2, ... (the
# others), each of which sends at RATE and no faster. Open MPI started by the program reaches them through
# this script as its remote shell. Namespaces and mounts belong to the processes that use them: nothing is
# left over when these end, however they end. Exit status 77, with the reason: not possible here.
set -eu
network=10.77.0

skip() {
    echo "hosts.sh: skip: $1" >&2
    exit 77
}

# As remote shell: hosts.sh ADDRESS COMMAND...
if [ "${HOSTS_ROLE:-}" = inside ]; then
    address=$1
    shift
    # Daemons of hosts that share a folder for temporary files race to make their folders there.
    export TMPDIR="/run/netns/tmp${address##*.}"
    exec nsenter --net="/run/netns/host${address##*.}" sh -c "$*"
fi

if [ "${HOSTS_ROLE:-}" != setup ]; then
    [ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
    for tool in ip tc unshare nsenter; do
        command -v $tool >/dev/null || skip "there is no $tool (packages iproute2 and util-linux)"
    done
    unshare --mount --net true 2>/dev/null || skip "this system allows no namespaces"
    HOSTS_ROLE=setup exec unshare --mount --net sh "$0" "$@"
fi

shape() {
    "$@" root tbf rate "$RATE" burst 64kbit latency 50ms 2>/dev/null ||
        skip "this kernel shapes no traffic (sch_tbf)"
}

mkdir -p /run/netns
mount -t tmpfs none /run/netns
ip link set lo up
ip link add switch type bridge 2>/dev/null || skip "this kernel has no bridges"
ip address add $network.254/24 dev switch
ip link set switch up
for i in $(seq "$HOSTS"); do
    ip netns add "host$i"
    mkdir "/run/netns/tmp$i"
    ip link add "port$i" type veth peer name eth0 netns "host$i" || skip "this kernel has no veth"
    ip link set "port$i" master switch up
    ip -n "host$i" link set lo up
    ip -n "host$i" address add "$network.$i/24" dev eth0
    ip -n "host$i" link set eth0 up
    shape tc -n "host$i" qdisc add dev eth0
done

export HOSTS_ROLE=inside
export OMPI_MCA_plm_rsh_agent="$0"
export OMPI_MCA_btl=tcp,self
export OMPI_MCA_oob_tcp_if_include=$network.0/24
export OMPI_MCA_btl_tcp_if_include=$network.0/24
exec "$PROGRAM" "$@"
