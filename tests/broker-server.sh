#!/bin/sh
# Runs a command with a RabbitMQ broker of its own: started in a temporary directory, reached on the loopback only, and stopped
# at the end. `make test-broker` and `make run-relay` use it.
#
# Environment: SHIFTBOSS_TEST_BROKER the URL of a broker whose user may declare queues: where it is set, that one is used; else
# the command has it, and SHIFTBOSS_TEST_BROKER_PID: that process kills the broker and starts it again when it gets SIGUSR1;
# SHIFTBOSS_TEST_BROKER_CTL: a program that is rabbitmqctl of that broker; SHIFTBOSS_TEST_BROKER_TLS: its URL with TLS, whose
# certificate is for localhost, and signed by that in SHIFTBOSS_TEST_BROKER_CA. SHIFTBOSS_TEST_NODES, 1 unless it is set, says how
# many nodes the broker has; the command has SHIFTBOSS_TEST_CLUSTER then, a directory with the files N/port and N/pid of each, and
# SIGUSR2 starts those again that were killed.
set -eu

fail() {
    echo "broker-server.sh: $*" >&2
    exit 1
}

programs() {
    for found in /usr/lib/rabbitmq/bin; do
        [ ! -x "$found/rabbitmq-server" ] || { echo "$found" && return; }
    done
    server=$(command -v rabbitmq-server) && dirname "$server"
}

install() {
    sh tests/install.sh rabbitmq-server ||
        fail "there is no RabbitMQ: install its server, version 3.10 or newer (Debian: rabbitmq-server), or set SHIFTBOSS_TEST_BROKER"
}

# A port of the loopback that nobody has.
free_port() {
    perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(LocalAddr => "127.0.0.1", Listen => 1)->sockport'
}

# The node has its own name, its own name server (epmd) and its own cookie, so it meets no other.
start() {
    bin=$(programs) || { install && bin=$(programs); }
    place=$(mktemp -d)
    trap stop EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    names=$(free_port)
    epmd -address 127.0.0.1 -port "$names" >"$place/epmd" 2>&1 &
    name_server=$!
    certificates
    echo '[].' >"$place/enabled_plugins"
    # The first one's ports are those that stay.
    for number in $(seq "${SHIFTBOSS_TEST_NODES:-1}" -1 1); do prepare_node; done
    printf '#!/bin/sh\n. "%s"\nexec "%s" "$@"\n' "$place/1/environment" "$bin/rabbitmqctl" >"$place/ctl"
    chmod +x "$place/ctl"
    keep &
    keeper=$!
    until [ -f "$place/started" ]; do
        kill -0 "$keeper" 2>/dev/null || exit 1
        sleep 0.1
    done
    SHIFTBOSS_TEST_BROKER="amqp://guest:guest@127.0.0.1:$port/%2f" SHIFTBOSS_TEST_BROKER_PID=$keeper
    SHIFTBOSS_TEST_BROKER_TLS="amqps://guest:guest@localhost:$tls/%2f" SHIFTBOSS_TEST_BROKER_CA=$place/ca.pem
    SHIFTBOSS_TEST_BROKER_CTL=$place/ctl
    export SHIFTBOSS_TEST_BROKER SHIFTBOSS_TEST_BROKER_PID SHIFTBOSS_TEST_BROKER_CTL
    export SHIFTBOSS_TEST_BROKER_TLS SHIFTBOSS_TEST_BROKER_CA
    [ ! -d "$place/2" ] || export SHIFTBOSS_TEST_CLUSTER="$place"
}

prepare_node() {
    port=$(free_port) tls=$(free_port) distribution=$(free_port) directory=$place/$number
    mkdir "$directory"
    echo "$port" >"$directory/port"
    configuration >"$directory/rabbitmq.conf"
    environment >"$directory/environment"
}

configuration() {
    cat <<END
listeners.tcp.1 = 127.0.0.1:$port
listeners.ssl.1 = 127.0.0.1:$tls
ssl_options.certfile = $place/server.pem
ssl_options.keyfile = $place/server.key
ssl_options.verify = verify_none
loopback_users = none
cluster_formation.classic_config.nodes.1 = node-1@localhost
END
}

# An authority, and a certificate of it for localhost alone.
certificates() {
    {
        openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj '/CN=an authority for tests' \
            -keyout "$place/ca.key" -out "$place/ca.pem" &&
            openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout "$place/server.key" -out "$place/request" &&
            echo 'subjectAltName = DNS:localhost' >"$place/names" &&
            openssl x509 -req -in "$place/request" -CA "$place/ca.pem" -CAkey "$place/ca.key" -CAcreateserial -days 2 \
                -extfile "$place/names" -out "$place/server.pem"
    } >"$place/output" 2>&1 || { cat "$place/output" >&2 && fail "openssl makes no certificates"; }
}

# What the node and its rabbitmqctl are started with.
environment() {
    cat <<END
export HOME=$place RABBITMQ_NODENAME=node-$number@localhost RABBITMQ_MNESIA_BASE=$place/mnesia RABBITMQ_LOG_BASE=$place/log
export RABBITMQ_CONFIG_FILE=$directory/rabbitmq.conf RABBITMQ_ENABLED_PLUGINS_FILE=$place/enabled_plugins
export RABBITMQ_DIST_PORT=$distribution RABBITMQ_PID_FILE=$directory/pid_file RABBITMQ_CONF_ENV_FILE=/dev/null
export ERL_EPMD_PORT=$names ERL_EPMD_ADDRESS=127.0.0.1
END
}

listens() {
    perl -MIO::Socket::INET -e 'exit !IO::Socket::INET->new("127.0.0.1:$ARGV[0]")' "$(cat "$place/$1/port")"
}

# One that ends instead of starting is started again: its name may be that of the killed one for a moment yet.
start_node() {
    tries=0 starts=0 server=
    while [ -z "$server" ] || ! listens "$1"; do
        if [ -z "$server" ] || ! kill -0 "$server" 2>/dev/null; then
            starts=$((starts + 1))
            setsid sh -c '. "$1" && exec "$2"' sh "$place/$1/environment" "$bin/rabbitmq-server" </dev/null >>"$place/output" 2>&1 &
            server=$!
            echo "$server" >"$place/$1/pid"
        fi
        tries=$((tries + 1))
        [ $tries -lt 600 ] && [ $starts -lt 5 ] || { cat "$place/output" >&2 && fail "node $1 does not start"; }
        sleep 0.2
    done
}

# Its process group is its own: the node and its helpers. None of them listens any more.
kill_node() {
    [ -f "$place/$1/pid" ] || return 0
    server=$(cat "$place/$1/pid")
    kill -KILL "-$server" 2>/dev/null || :
    wait "$server" 2>/dev/null || :
    tries=0
    while listens "$1" && [ $tries -lt 50 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
}

# Whoever does not listen here is dead, or hangs: a node is waited for until it does.
start_killed() {
    for number in $(seq "${SHIFTBOSS_TEST_NODES:-1}"); do
        listens "$number" || { kill_node "$number" && start_node "$number"; }
    done
}

# The nodes' parent, a process of its own: a signal for the broker interrupts nobody who waits for the command. What a signal asks
# for is done here and not by its trap, which another signal would interrupt.
keep() {
    killed='' dead=''
    trap killed=yes USR1
    trap dead=yes USR2
    start_killed
    : >"$place/started"
    while :; do
        sleep 0.1
        if [ "$killed" ]; then
            killed=''
            kill_node 1 && start_node 1
        fi
        if [ "$dead" ]; then
            dead=''
            start_killed
        fi
    done
}

stop() {
    code=$?
    trap - EXIT INT TERM
    [ -z "$keeper" ] || { kill "$keeper" && wait "$keeper"; } 2>/dev/null || :
    for number in $(seq "${SHIFTBOSS_TEST_NODES:-1}"); do kill_node "$number"; done
    kill -KILL "$name_server" 2>/dev/null || :
    rm -rf "$place"
    exit "$code"
}

if [ -n "${SHIFTBOSS_TEST_BROKER:-}" ]; then
    exec "$@"
fi
keeper=
start
"$@"
