#!/bin/bash
# Three machines become a cluster, one of them dies, and nothing is lost. Here all three are on this machine, with the
# addresses 127.0.0.2, 127.0.0.3 and 127.0.0.4; on machines of your own the commands are the same.
#
# To run it, with `cairn` and curl in the PATH, and 3 GiB free:
#
#     examples/three-machines.sh        # in a new directory, which goes when the script ends
#
# It takes less than a minute, most of it waiting for the others to notice the death.
set -euo pipefail

work=$(mktemp -d "${TMPDIR:-/var/tmp}/cairn-example.XXXXXX")
declare -A process
trap 'kill "${process[@]}" 2>/dev/null; wait; rm -rf "$work"' EXIT
cd "$work"

node() { # number, options of the first time
    local number=$1; shift
    cairn node "machine$number" --s3 "127.0.0.$number:9000" --http "127.0.0.$number:8080" "$@" \
        >>"log$number" 2>&1 &
    process[$number]=$!
}
until_true() { # what it waits for, command
    local what=$1; shift
    for _ in $(seq 300); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.2
    done
    echo "waited in vain until $what" >&2
    tail -n 20 log* >&2
    exit 1
}
token() { cairn cluster token machine2 --machine | grep -o 'cairn-node-1\.[^ ]*'; }

# Five commands, as in docs/cluster.md: a first machine, and for each further one a token and the machine.
node 2 --address 127.0.0.2
until_true "the first machine serves" curl -sf http://127.0.0.2:8080/readyz
node 3 --address 127.0.0.3 --join "$(token)"
until_true "the second machine serves" curl -sf http://127.0.0.3:8080/readyz
node 4 --address 127.0.0.4 --join "$(token)"
until_true "the third machine serves" curl -sf http://127.0.0.4:8080/readyz
until_true "three masters vote" eval '[ "$(cairn cluster status machine2 | grep -c voter)" = 3 ]'
cairn cluster status machine2 --wait                       # until all nodes are up, and all data have all replicas

# The credentials are in what the first machine printed.
CAIRN_KEY=$(sed -n 's/^ *access key *//p' log2)
CAIRN_SECRET=$(sed -n 's/^ *secret key *//p' log2)
export CAIRN_KEY CAIRN_SECRET

# Written at one machine, and read at another one at once.
head -c 10000000 /dev/urandom >film
CAIRN_SERVER=http://127.0.0.2:8080 cairn bucket create films
CAIRN_SERVER=http://127.0.0.2:8080 cairn put film films/film
CAIRN_SERVER=http://127.0.0.3:8080 cairn get films/film - | cmp - film

echo "the first machine dies"
kill -9 "${process[2]}"
CAIRN_SERVER=http://127.0.0.3:8080 cairn get films/film - | cmp - film
CAIRN_SERVER=http://127.0.0.4:8080 cairn put film films/again          # waits until another master serves
cairn cluster status machine3 || echo "which is status $?: something is down"

echo "it comes back"
node 2
cairn cluster status machine3 --wait
CAIRN_SERVER=http://127.0.0.2:8080 cairn get films/again - | cmp - film
echo done
