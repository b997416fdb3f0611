#!/usr/bin/env bash
#
# The drivers' test, run in databases of three encodings
#
# usage: driver_test
#
# Prints TAP.  It is built and put beside its module by the Makefile of
# test/drivers: see there.
set -u -o pipefail

here=$(dirname "$(realpath -- "${BASH_SOURCE[0]}")")
readonly lab=@TOP@/test/lab
D=

clean_up()
{
	[ -z "$D" ] || "$lab" down --dir "$D/lab"
	rm -rf "$D"
}

die()
{
	echo "Bail out!  $*"
	exit 1
}

# $1 database, $2 what runs in it.  The counts of all files become one plan.
run_file()
{
	local line

	while IFS= read -r line; do
		if [[ $line =~ ^(ok|not\ ok)\ [0-9]+\ -\ (.*) ]]; then
			[ "${BASH_REMATCH[1]}" = ok ] || status=1
			n=$((n + 1))
			echo "${BASH_REMATCH[1]} $n - ${1#drivers_}: ${BASH_REMATCH[2]}"
		elif [[ $line != 1..* ]]; then
			echo "$line"
		fi
	done < <(psql -d "$1" -f "$here/module/$2" 2>&1 || echo "Bail out!  $2 has failed in database $1")
}

psql()
{
	command psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"
}

D=$(mktemp -d "${TMPDIR:-/tmp}/payflow-drivers.XXXXXX") || exit 1
chmod 711 "$D"
trap clean_up EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
"$lab" up --dir "$D/lab" --conf payflow.databases= >"$D/env" || die "the lab does not come up"
# shellcheck disable=SC1091
. "$D/env"

# the server reads nothing outside of its lab
module=$D/lab/driver_functions.so
install -m 644 "$here/module/driver_functions.so" "$module" || die "the module cannot be copied"

n=0
status=0
for encoding in utf8 latin1 sql_ascii; do
	psql -c "CREATE DATABASE drivers_$encoding ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0" ||
		die "a database with encoding $encoding cannot be made"
	psql -d "drivers_$encoding" -v module="$module" -f "$here/module/driver_functions.sql" ||
		die "the functions cannot be made in database drivers_$encoding"
done
run_file drivers_utf8 driver_test.sql
run_file drivers_utf8 lib_test.sql
run_file drivers_latin1 encoding_test.sql
run_file drivers_sql_ascii encoding_test.sql
echo "1..$n"
exit "$status"
