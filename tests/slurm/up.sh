#!/usr/bin/env bash
# A real SLURM cluster on this machine's loopback, for tests: munge, slurmctld and three slurmd.
#
#   WATTSLICE_SLURM_DIR=/tmp/somewhere tests/slurm/up.sh
#
# Needs root and Debian; installs the packages that are missing. Calling it again gives a clean
# cluster. Nodes n1 and n2 make the partition `gpu`, n3 is `spare`. Every node has one board cut
# into 3g+2x1g. What a node's environment is (simulated board, UUIDs of its slices) is read from
# the file `node-NAME.env` in the folder by the task prolog, and may be written at any time.
set -euo pipefail
folder=${WATTSLICE_SLURM_DIR:?set it to a folder of its own}
here=$(cd "$(dirname "$0")" && pwd)
nodes=(n1 n2 n3)

[ "$(id -u)" = 0 ] || { echo "needs root: daemons, device nodes and /etc/slurm" >&2; exit 77; }
missing=0
for command in munged slurmctld slurmd sbatch; do
  command -v "$command" >/dev/null || missing=1
done
if [ "$missing" = 1 ]; then
  command -v apt-get >/dev/null || { echo "needs Debian's packages (no apt-get)" >&2; exit 77; }
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
    munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins >/dev/null
fi

# A cluster that an earlier test run left, here or in another folder, is ended first.
earlier=$(readlink /etc/slurm/slurm.conf || true)
case $earlier in
  */etc/slurm.conf) WATTSLICE_SLURM_DIR=${earlier%/etc/slurm.conf} "$here/down.sh" ;;
esac
WATTSLICE_SLURM_DIR=$folder "$here/down.sh"
for file in slurm.conf gres.conf; do
  if [ -e "/etc/slurm/$file" ] && [ ! -L "/etc/slurm/$file" ]; then
    echo "/etc/slurm/$file is not ours: this machine has a SLURM of its own" >&2
    exit 77
  fi
done
rm -rf "$folder"/{etc,state,log,run,dev,spool}
mkdir -p "$folder"/{etc,state,log,run,dev} /etc/slurm
host=$(hostname -s)

# SLURM gives out character devices by their number; plain files get no CUDA_VISIBLE_DEVICES.
port=16830
: >"$folder/etc/gres.conf"
: >"$folder/etc/nodes.conf"
for node in "${nodes[@]}"; do
  port=$((port + 1))
  mkdir -p "$folder/spool/$node"
  for index in 0 1 2; do
    mknod -m 666 "$folder/dev/$node-slice$index" c 1 3
  done
  cat >>"$folder/etc/gres.conf" <<CONF
NodeName=$node Name=gpu Type=3g.40gb File=$folder/dev/$node-slice0
NodeName=$node Name=gpu Type=1g.10gb File=$folder/dev/$node-slice[1-2]
CONF
  cat >>"$folder/etc/nodes.conf" <<CONF
NodeName=$node NodeHostname=$host NodeAddr=127.0.0.1 Port=$port CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=64000 Gres=gpu:3g.40gb:1,gpu:1g.10gb:2
CONF
done

cat >"$folder/etc/slurm.conf" <<CONF
ClusterName=wattslice
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16830
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/slurmd-%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd-%n.log
TaskProlog=$folder/etc/task-prolog.sh
MailProg=/bin/true
# Neither control groups nor a database are to be had on every test machine.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=1
# A node says that it has 4 cores, whatever this machine has.
SlurmdParameters=config_overrides
DefMemPerCPU=500
EnforcePartLimits=ANY
ReturnToService=2
# squeue must still know of jobs that have ended.
MinJobAge=3600
KillWait=2
GresTypes=gpu
PartitionName=gpu Nodes=n1,n2 LLN=YES Default=YES MaxTime=60 State=UP
PartitionName=spare Nodes=n3 MaxTime=60 State=UP
include $folder/etc/nodes.conf
CONF
cat >"$folder/etc/task-prolog.sh" <<CONF
#!/bin/bash
# SLURM gives a step the numbers of its devices; a MIG node names them by UUID instead.
# SLICES is the list of the node's slices in the order of gres.conf.
file=$folder/node-\$SLURMD_NODENAME.env
[ -r "\$file" ] || exit 0
SLICES=
. "\$file"
grep -v '^SLICES=' "\$file" | sed 's/^/export /'
[ -n "\${CUDA_VISIBLE_DEVICES:-}" ] && [ -n "\$SLICES" ] || exit 0
slices=(\$SLICES)
given=
for number in \${CUDA_VISIBLE_DEVICES//,/ }; do
  case \$number in
    MIG-*) given=\$given,\$number ;;
    *) given=\$given,\${slices[\$number]} ;;
  esac
done
echo "export CUDA_VISIBLE_DEVICES=\${given#,}"
CONF
chmod 755 "$folder/etc/task-prolog.sh"
# The plugin's inner srun runs without SLURM_CONF, so the files must be where SLURM looks.
for file in slurm.conf gres.conf; do
  ln -sfn "$folder/etc/$file" "/etc/slurm/$file"
done
unset SLURM_CONF

if [ ! -s /etc/munge/munge.key ]; then
  (umask 077 && dd if=/dev/urandom of=/etc/munge/munge.key bs=128 count=1 status=none)
  chown munge: /etc/munge/munge.key
fi
install -d -o munge -g munge -m 755 /run/munge
if ! munge -n 2>/dev/null | unmunge >/dev/null 2>&1; then
  runuser -u munge -- /usr/sbin/munged --force
  cp /run/munge/munged.pid "$folder/run/munged.pid"
fi

slurmctld -c
for node in "${nodes[@]}"; do
  slurmd -N "$node"
done
# The daemons go to the background before they can fail, so ask the cluster itself.
for _ in $(seq 80); do
  ready=$(timeout 5 sinfo -h -N -o %t 2>/dev/null | grep -c '^idle$' || true)
  if [ "$ready" = "${#nodes[@]}" ]; then
    echo "slurm is up: $(sinfo -h -o '%P %N %G' | tr '\n' ';')"
    exit 0
  fi
  sleep 0.25
done
echo "slurm did not come up:" >&2
grep -hiE 'fatal|error' "$folder"/log/*.log | grep -vi pmi | tail -20 >&2
exit 1
