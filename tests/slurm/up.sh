#!/usr/bin/env bash
# A real SLURM cluster on this machine's loopback, for tests: munge, slurmctld and five slurmd.
#
#   WATTSLICE_SLURM_DIR=/tmp/somewhere tests/slurm/up.sh [--install]
#
# Needs root and Debian; --install gets the packages that are missing. Calling it again gives a
# clean cluster. Exit code 77: this machine cannot have one, for the reason on stderr.
#
#   partition  nodes  devices of each       for
#   gpu        n1 n2  3g.40gb:1 1g.10gb:2   campaigns on boards that are cut
#   spare      n3     3g.40gb:1 1g.10gb:2   faults, beside them
#   night      n4 n5  a100:1                whole boards, pre-empted (requeued) by urgent
#
# What a node's environment is (simulated board, UUIDs of its slices) is read from the file
# node-NAME.env in the folder by the task prolog, and may be written at any time.
set -euo pipefail
folder=${WATTSLICE_SLURM_DIR:?set it to a folder of its own}
here=$(cd "$(dirname "$0")" && pwd)
run=/run/wattslice-slurm # what down.sh needs, wherever the folder was and whether it is there
cut=(n1 n2 n3)
whole=(n4 n5)

cannot() {
  echo "$1" >&2
  exit 77
}

[ "$(id -u)" = 0 ] || cannot "needs root, for daemons, device nodes and /etc/slurm"
missing=
for command in munged slurmctld slurmd sbatch; do
  command -v "$command" >/dev/null || missing=$command
done
if [ -n "$missing" ]; then
  [ "${1:-}" = --install ] || cannot "there is no $missing (up.sh --install gets it)"
  command -v apt-get >/dev/null || cannot "needs Debian's packages, and there is no apt-get"
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
    munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins >/dev/null
fi

# A cluster that an earlier test run left, maybe with another folder, is ended first.
"$here/down.sh"
for file in slurm.conf gres.conf; do
  [ -e "/etc/slurm/$file" ] && cannot "/etc/slurm/$file is there: this machine has a SLURM of its own"
done
rm -rf "$folder"/{etc,state,log,dev,spool}
mkdir -p "$folder"/{etc,state,log,dev} /etc/slurm "$run"
echo "$folder" >"$run/folder"
host=$(hostname -s)

# SLURM gives out character devices by their number; plain files get no CUDA_VISIBLE_DEVICES.
port=16830
: >"$folder/etc/gres.conf"
: >"$folder/etc/nodes.conf"
node() { # NAME GRES
  port=$((port + 1))
  mkdir -p "$folder/spool/$1"
  cat >>"$folder/etc/nodes.conf" <<CONF
NodeName=$1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$port CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=64000 Gres=$2
CONF
}
devices() { # NODE TYPE FIRST LAST
  for index in $(seq "$3" "$4"); do
    mknod -m 666 "$folder/dev/$1-device$index" c 1 3
  done
  echo "NodeName=$1 Name=gpu Type=$2 File=$folder/dev/$1-device[$3-$4]" >>"$folder/etc/gres.conf"
}
for name in "${cut[@]}"; do
  node "$name" gpu:3g.40gb:1,gpu:1g.10gb:2
  devices "$name" 3g.40gb 0 0
  devices "$name" 1g.10gb 1 2
done
for name in "${whole[@]}"; do
  node "$name" gpu:a100:1
  devices "$name" a100 0 0
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
SlurmctldPidFile=$run/slurmctld.pid
SlurmdPidFile=$run/slurmd-%n.pid
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
# Jobs of night make room for those of urgent; then they may start again at once, not only
# when the credential of their first start has expired (two minutes).
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AuthInfo=cred_expire=10
# This machine may be busy with other things.
MessageTimeout=60
# A node says that it has 4 cores, whatever this machine has.
SlurmdParameters=config_overrides
DefMemPerCPU=500
EnforcePartLimits=ANY
ReturnToService=1
# squeue must still know of jobs that have ended.
MinJobAge=3600
KillWait=2
GresTypes=gpu
PartitionName=gpu Nodes=n1,n2 LLN=YES Default=YES MaxTime=60 State=UP PreemptMode=OFF
PartitionName=spare Nodes=n3 MaxTime=60 State=UP PreemptMode=OFF
PartitionName=night Nodes=n4,n5 MaxTime=60 State=UP PriorityTier=1
PartitionName=urgent Nodes=n4,n5 MaxTime=60 State=UP PriorityTier=2 PreemptMode=OFF
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
  cp /run/munge/munged.pid "$run/munged.pid"
fi

slurmctld -c
for name in "${cut[@]}" "${whole[@]}"; do
  slurmd -N "$name"
done
# The daemons go to the background before they can fail, so ask the cluster itself.
for _ in $(seq 240); do
  idle=$(timeout 30 sinfo -h -N -o '%N %t' 2>/dev/null | sort -u | grep -c ' idle$' || true)
  if [ "$idle" = $((${#cut[@]} + ${#whole[@]})) ]; then
    echo "slurm is up: $(sinfo -h -o '%P %N %G' | tr '\n' ';')"
    exit 0
  fi
  sleep 0.25
done
echo "slurm did not come up:" >&2
grep -hiE 'fatal|error' "$folder"/log/*.log | grep -vi pmi | tail -20 >&2
exit 1
