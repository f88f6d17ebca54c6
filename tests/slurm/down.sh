#!/usr/bin/env bash
# Ends the cluster of up.sh: jobs first, then the daemons whose process ids it wrote down.
run=/run/wattslice-slurm
[ -d "$run" ] || exit 0
folder=$(cat "$run/folder")

# A daemon that was killed may stay as a zombie, which is as good as gone.
runs() {
  [ "$(cat "/proc/$1/comm" 2>/dev/null)" = "$2" ] || return 1
  ! grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null
}

end() {
  local pid
  [ -s "$1" ] || return 0
  pid=$(cat "$1")
  if runs "$pid" "$2"; then
    kill "$pid"
    for _ in $(seq 50); do
      runs "$pid" "$2" || break
      sleep 0.1
    done
    if runs "$pid" "$2"; then kill -9 "$pid"; fi
  fi
  rm -f "$1"
}

# Steps outlive the daemon that started them, so they are cancelled while it is there.
control=$(cat "$run/slurmctld.pid" 2>/dev/null)
if [ -n "$control" ] && runs "$control" slurmctld; then
  jobs=$(timeout 10 squeue -h -o %A 2>/dev/null | sort -u)
  # shellcheck disable=SC2086
  [ -z "$jobs" ] || timeout 10 scancel $jobs
  for _ in $(seq 40); do
    [ -z "$(timeout 5 squeue -h 2>/dev/null)" ] && break
    sleep 0.25
  done
fi
for file in "$run"/slurmd-*.pid; do
  end "$file" slurmd
done
end "$run/slurmctld.pid" slurmctld
end "$run/munged.pid" munged
for file in slurm.conf gres.conf; do
  [ "$(readlink "/etc/slurm/$file")" = "$folder/etc/$file" ] && rm -f "/etc/slurm/$file"
done
rm -rf "$run"
