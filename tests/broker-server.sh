#!/bin/sh
# Runs a command with a RabbitMQ broker of its own: started in a temporary directory, reached on the loopback only, and stopped
# at the end. `make test-broker` and `make run-relay` use it.
#
# Environment: SHIFTBOSS_TEST_BROKER the URL of a broker whose user may declare queues: where it is set, that one is used; else
# the command has it, and SHIFTBOSS_TEST_BROKER_PID: that process kills the broker and starts it again when it gets SIGUSR1;
# SHIFTBOSS_TEST_BROKER_CTL: a program that is rabbitmqctl of that broker; SHIFTBOSS_TEST_BROKER_TLS: its URL with TLS, whose
# certificate is for localhost, and signed by that in SHIFTBOSS_TEST_BROKER_CA.
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
    trap 'restart' USR1
    port=$(free_port) tls=$(free_port) names=$(free_port) distribution=$(free_port)
    epmd -address 127.0.0.1 -port "$names" >"$place/epmd" 2>&1 &
    name_server=$!
    certificates
    configuration >"$place/rabbitmq.conf"
    echo '[].' >"$place/enabled_plugins"
    environment >"$place/environment"
    printf '#!/bin/sh\n. "%s"\nexec "%s" "$@"\n' "$place/environment" "$bin/rabbitmqctl" >"$place/ctl"
    chmod +x "$place/ctl"
    start_node
    SHIFTBOSS_TEST_BROKER="amqp://guest:guest@127.0.0.1:$port/%2f" SHIFTBOSS_TEST_BROKER_PID=$$
    SHIFTBOSS_TEST_BROKER_TLS="amqps://guest:guest@localhost:$tls/%2f" SHIFTBOSS_TEST_BROKER_CA=$place/ca.pem
    SHIFTBOSS_TEST_BROKER_CTL=$place/ctl
    export SHIFTBOSS_TEST_BROKER SHIFTBOSS_TEST_BROKER_PID SHIFTBOSS_TEST_BROKER_CTL
    export SHIFTBOSS_TEST_BROKER_TLS SHIFTBOSS_TEST_BROKER_CA
}

configuration() {
    cat <<END
listeners.tcp.1 = 127.0.0.1:$port
listeners.ssl.1 = 127.0.0.1:$tls
ssl_options.certfile = $place/server.pem
ssl_options.keyfile = $place/server.key
ssl_options.verify = verify_none
loopback_users = none
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
export HOME=$place RABBITMQ_NODENAME=test-$port@localhost RABBITMQ_MNESIA_BASE=$place/mnesia RABBITMQ_LOG_BASE=$place/log
export RABBITMQ_CONFIG_FILE=$place/rabbitmq.conf RABBITMQ_ENABLED_PLUGINS_FILE=$place/enabled_plugins
export RABBITMQ_DIST_PORT=$distribution RABBITMQ_PID_FILE=$place/pid RABBITMQ_CONF_ENV_FILE=/dev/null
export ERL_EPMD_PORT=$names ERL_EPMD_ADDRESS=127.0.0.1
END
}

start_node() {
    setsid sh -c '. "$1" && exec "$2"' sh "$place/environment" "$bin/rabbitmq-server" </dev/null >>"$place/output" 2>&1 &
    server=$!
    tries=0
    until perl -MIO::Socket::INET -e 'exit !IO::Socket::INET->new("127.0.0.1:$ARGV[0]")' "$port"; do
        tries=$((tries + 1))
        { [ $tries -lt 300 ] && kill -0 $server 2>/dev/null; } || { cat "$place/output" >&2 && fail "the broker does not start"; }
        sleep 0.2
    done
}

# Its process group is its own: the node and its helpers.
kill_node() {
    kill -KILL "-$server" 2>/dev/null || :
    wait "$server" 2>/dev/null || :
}

restart() {
    kill_node
    start_node
}

stop() {
    code=$?
    trap - EXIT INT TERM USR1
    [ -z "$command" ] || kill "$command" 2>/dev/null || :
    kill_node
    kill -KILL "$name_server" 2>/dev/null || :
    rm -rf "$place"
    exit "$code"
}

if [ -n "${SHIFTBOSS_TEST_BROKER:-}" ]; then
    exec "$@"
fi
command=
start
"$@" &
command=$!
# A signal ends a wait; the command has not ended by that.
while wait "$command" && code=0 || code=$?; kill -0 "$command" 2>/dev/null; do :; done
command=
exit "$code"
