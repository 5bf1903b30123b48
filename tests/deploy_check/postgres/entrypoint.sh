# Makes a database with a password and the tables of /docker-entrypoint-initdb.d, then serves it.
data=/var/lib/postgresql/data
if [ ! -e $data/PG_VERSION ]; then
    echo "$POSTGRES_PASSWORD" > /tmp/password
    initdb --pgdata=$data --username=postgres --pwfile=/tmp/password --auth-local=trust \
        --auth-host=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8
    echo "host all all all scram-sha-256" >> $data/pg_hba.conf
    echo "host replication all all scram-sha-256" >> $data/pg_hba.conf
    pg_ctl --pgdata=$data --options="-c listen_addresses=" --wait start
    createdb --username=postgres "$POSTGRES_DB"
    for script in /docker-entrypoint-initdb.d/*.sql; do
        psql --username=postgres --dbname="$POSTGRES_DB" --file="$script"
    done
    pg_ctl --pgdata=$data --wait stop
fi
shift
exec postgres -D $data -c "listen_addresses=*" "$@"
