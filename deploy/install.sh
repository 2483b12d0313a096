#!/bin/sh
# Installs Berth on one machine with Debian or Ubuntu (docs/install.md):
#
#   curl -fsSL RELEASE/install.sh | sudo sh -s -- --base-domain apps.example.org --admin you@example.org
#
# It checks the machine before its first change, and names all problems at once. Run it again at any
# time, also after it was interrupted: it keeps what is there. Everything is in functions, so a
# download that was cut runs nothing.
set -eu
# As `berth install` itself: never a program of the caller's own folders, and folders that all can read.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
umask 022

# `npm run release` writes both: the version, and the address of its files.
VERSION='@VERSION@'
RELEASE='@RELEASE@'

# The sum of each file is in SHA256SUMS of the release.
CACHE=/var/cache/berth-install
TRAEFIK_BIN=/usr/local/bin/traefik
BUILDX_BIN=/usr/local/lib/docker/cli-plugins/docker-buildx
BERTH=/usr/lib/berth/bin/berth
SETTINGS=/etc/berth/control-plane.env
LEAST_MEMORY_MB=900
LEAST_DISK_MB=4000
READY_SECONDS=240

usage() {
	cat <<'END'
Usage: install.sh --base-domain NAME --admin EMAIL [--dry-run] [--release URL|FOLDER] [options of berth install all]

Installs Berth on this machine, starts it, and waits until https://NAME answers.

  --base-domain NAME    projects are published at <prefix>.NAME
  --admin EMAIL         e-mail address of the first admin
  --dry-run             names every problem and every step, and changes nothing
  --release URL|FOLDER  where the files of the release are (default: where this script came from)

Every other option is passed to `berth install all`, for example --acme-email or --internal-address.
END
}

say() { printf '%s\n' "$*"; }
step() { printf '\n%s\n' "$*"; }
fail() {
	printf 'install.sh: %s\n' "$*" >&2
	exit 1
}

PROBLEMS=''
WARNINGS=''
problem() { PROBLEMS="$PROBLEMS  - $*
"; }
warning() { WARNINGS="$WARNINGS  - $*
"; }

has() { command -v "$1" >/dev/null 2>&1; }
is_installed() { [ -x "$BERTH" ]; }
# A setting of the control plane that is here.
setting() { sed -n "s/^$1=//p" "$SETTINGS" 2>/dev/null | tail -n 1 | tr -d "\"'"; }

main() {
	BASE_DOMAIN=''
	ADMIN=''
	DRY_RUN=''
	# Each other argument moves to the end of the list, which `berth install` gets.
	remaining=$#
	while [ "$remaining" -gt 0 ]; do
		option=$1
		shift
		remaining=$((remaining - 1))
		case $option in
		--help | -h)
			usage
			exit 0
			;;
		--dry-run) DRY_RUN=yes ;;
		--base-domain=*) BASE_DOMAIN=${option#*=} ;;
		--admin=*) ADMIN=${option#*=} ;;
		--release=*) RELEASE=${option#*=} ;;
		--base-domain | --admin | --release)
			[ "$remaining" -gt 0 ] || fail "$option: a value must follow"
			case $option in
			--base-domain) BASE_DOMAIN=$1 ;;
			--admin) ADMIN=$1 ;;
			--release) RELEASE=$1 ;;
			esac
			shift
			remaining=$((remaining - 1))
			;;
		# Both are this script's own decisions.
		--start | --yes) ;;
		--compose) problem '--compose: the image of Berth does that without this script (docs/compose.md)' ;;
		*)
			case ${option%%=*} in
			--acme-email | --acme-ca-server | --acme-challenge | --internal-address | --package | --registry) ;;
			--registry-user | --registry-password-file | --traefik | --name | --proxy-address) ;;
			-?*) problem "${option%%=*}: unknown option; --help lists them" ;;
			esac
			set -- "$@" "$option"
			;;
		esac
	done
	# A second run keeps what the first one wrote: it passes on only what was given.
	GIVEN_DOMAIN=$BASE_DOMAIN
	GIVEN_ADMIN=$ADMIN
	BASE_DOMAIN=${BASE_DOMAIN:-$(setting BASE_DOMAIN)}
	ADMIN=${ADMIN:-$(setting ADMIN_EMAILS)}
	ADMIN=${ADMIN%%,*}

	check_machine
	check_options
	WORK=$(mktemp -d)
	trap 'rm -rf "$WORK"' EXIT
	trap 'exit 130' INT TERM HUP
	check_release
	[ -z "$WARNINGS" ] || printf 'warning:\n%s' "$WARNINGS" >&2
	if [ -n "$PROBLEMS" ]; then
		printf 'Berth cannot be installed on this machine yet. Nothing was changed:\n%s' "$PROBLEMS" >&2
		exit 1
	fi
	plan
	if [ -n "$DRY_RUN" ]; then
		step 'This would be done:'
		printf '%s' "$STEPS"
		exit 0
	fi

	install_packages
	install_programs
	install_berth
	step 'Berth is set up and started:'
	"$BERTH" install all ${GIVEN_DOMAIN:+--base-domain "$GIVEN_DOMAIN"} ${GIVEN_ADMIN:+--admin "$GIVEN_ADMIN"} \
		--yes --start "$@" </dev/null
	wait_until_ready
}

# --- Checks: they change nothing ---------------------------------------------------------------

check_machine() {
	[ "$(id -u)" = 0 ] || [ -n "$DRY_RUN" ] || problem 'only root can install: put sudo before sh'
	check_system
	if has dpkg; then ARCH=$(dpkg --print-architecture); else ARCH=unknown; fi
	case $ARCH in
	amd64 | arm64) ;;
	*) problem "the architecture is $ARCH: Berth runs on amd64 and arm64" ;;
	esac
	[ -d /run/systemd/system ] ||
		problem 'systemd does not run here: use a machine or a virtual machine, not a container; or use the image (docs/compose.md)'
	memory=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
	[ "$memory" -ge "$LEAST_MEMORY_MB" ] ||
		problem "the machine has $memory MB of memory: Berth needs 1 GB"
	[ ! -e /etc/berth/compose/compose.yml ] ||
		problem 'compose runs Berth on this machine (/etc/berth/compose). To upgrade it: docs/compose.md "Upgrade"'
	# An operator can write other settings before the installation.
	[ -e "$SETTINGS" ] || ! ls /etc/berth/agent*.env >/dev/null 2>&1 ||
		problem 'this machine is a node of another control plane (/etc/berth/agent*.env). To upgrade it: apt-get install ./berth_NEW.deb (docs/upgrade.md)'
	is_installed || check_space
	is_installed || check_ports
}

check_system() {
	name=$(release_field PRETTY_NAME)
	major=$(release_field VERSION_ID)
	major=${major%%.*}
	case $(release_field ID) in
	debian)
		[ -z "$major" ] || [ "$major" -ge 12 ] || problem "this is $name: Berth needs Debian 12 or newer"
		;;
	ubuntu)
		[ "${major:-0}" -ge 22 ] || problem "this is $name: Berth needs Ubuntu 22.04 or newer"
		;;
	*)
		case " $(release_field ID_LIKE) " in
		*' debian '*) warning "this is ${name:-unknown}: Berth is tested on Debian and Ubuntu" ;;
		*) problem "this is ${name:-an unknown system}: Berth needs Debian 12, Ubuntu 22.04, or newer. On other systems, use the image (docs/compose.md)" ;;
		esac
		;;
	esac
}

# In a shell of its own, because the file also sets VERSION.
release_field() (
	[ ! -r /etc/os-release ] || . /etc/os-release
	eval "printf '%s' \"\${$1:-}\""
)

check_space() {
	free=$(df -Pk /var | awk 'NR == 2 { print int($4 / 1024) }')
	[ "$free" -ge "$LEAST_DISK_MB" ] ||
		problem "$free MB are free below /var: Berth, the engine and the first images need $LEAST_DISK_MB MB"
}

# The table of the kernel, because `ss` can be missing. State 0A: a program listens there.
is_taken() {
	hex=$(printf '%04X' "$1")
	cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
		awk -v port="$hex" '$4 == "0A" { split($2, address, ":"); if (address[2] == port) { found = 1 } } END { exit !found }'
}

check_ports() {
	# Debian's own registry has the port until `berth install` stops it.
	registry='5000 the registry'
	[ ! -x /usr/bin/docker-registry ] || registry=''
	for one in ${registry:+"$registry"} '80 the proxy' '443 the proxy' '8080 the control plane' '8082 the relay' '4180 the gateway'; do
		port=${one%% *}
		if is_taken "$port"; then
			who=''
			has ss && who=$(ss -ltnpH "sport = :$port" 2>/dev/null | sed -n 's/.*users:((\"\([^\"]*\)\".*/ by \1/p' | head -n 1)
			problem "port $port, which ${one#* } needs, is in use$who: stop that program, or use another machine"
		fi
	done
}

check_options() {
	if [ -z "$BASE_DOMAIN" ]; then
		address=$(own_address)
		problem "--base-domain is missing: a domain whose DNS leads here, also its subdomains (*.apps.example.org).
    Without a domain of your own, --base-domain $(printf '%s' "${address:-203.0.113.5}" | tr . -).sslip.io works at once,
    if people reach this machine at ${address:-that address}. It belongs to sslip.io, which then answers for its DNS"
	else
		case $BASE_DOMAIN in
		*[!a-z0-9.-]* | .* | *. | -* | *..*) problem "--base-domain $BASE_DOMAIN: must be a domain in lower case, such as apps.example.org" ;;
		*.*[!0-9.]* | *[!0-9.]*.*) check_dns ;;
		*) problem "--base-domain $BASE_DOMAIN: must be a domain, such as apps.example.org, and no address" ;;
		esac
	fi
	case $ADMIN in
	'') problem '--admin is missing: your e-mail address, with which you sign in first' ;;
	*[[:space:]]* | @* | *@ | *@*@*) problem "--admin $ADMIN: must be an e-mail address" ;;
	*@*) ;;
	*) problem "--admin $ADMIN: must be an e-mail address" ;;
	esac
}

own_address() {
	has ip || return 0
	route=$(ip -4 route get 192.0.2.1 2>/dev/null | sed -n 's/.* src \([0-9.]*\).*/\1/p' | head -n 1)
	# A machine without a way to the internet has addresses too. Those of containers are not its own.
	[ -n "$route" ] || route=$(ip -4 -o addr show scope global 2>/dev/null |
		awk '$2 !~ /^(docker|br-|veth)/ { sub(/\/.*/, "", $4); print $4; exit }')
	printf '%s' "$route"
}

# DNS is no problem, because it can come later; but certificates need it.
check_dns() {
	for name in "$BASE_DOMAIN" "berth-check.$BASE_DOMAIN"; do
		getent hosts "$name" >/dev/null 2>&1 ||
			warning "no DNS for $name: create A records for $BASE_DOMAIN and *.$BASE_DOMAIN that lead to this machine. Until then there is no certificate"
	done
}

check_release() {
	case $RELEASE in
	'' | @*) problem '--release is missing: the address or the folder with the files of the release' ;;
	http://* | https://*)
		case $RELEASE in http://*) warning "$RELEASE is not https: everyone on the way can change what root runs here" ;; esac
		if has curl; then read_sums; else problem 'curl is missing: apt-get install curl'; fi
		;;
	*) read_sums ;;
	esac
}

read_sums() {
	if ! fetch SHA256SUMS "$WORK/SHA256SUMS" 2>"$WORK/error"; then
		problem "the release cannot be read at $RELEASE: $(tail -n 1 "$WORK/error")"
		return 0
	fi
	case $VERSION in @*) VERSION=$(sed -n 's/.*  berth_\(.*\)_'"$ARCH"'\.deb$/\1/p' "$WORK/SHA256SUMS" | head -n 1) ;; esac
	here=$(installed_version)
	[ -z "$here" ] || dpkg --compare-versions "$here" le "$VERSION" ||
		problem "Berth $here is installed, which is newer than $VERSION: docs/upgrade.md says how to go back"
	DEB=berth_${VERSION}_$ARCH.deb
	TRAEFIK=$(named 'traefik_.*_linux_'"$ARCH")
	BUILDX=$(named 'docker-buildx_.*_linux_'"$ARCH")
	[ -n "$(sum_of "$DEB")" ] || problem "the release at $RELEASE has no $DEB"
	[ -n "$TRAEFIK" ] || is_traefik "$(traefik_here)" ||
		problem "the release at $RELEASE has no Traefik for $ARCH: put the program of github.com/traefik/traefik/releases, 3.7.13 or newer, at $TRAEFIK_BIN with mode 0755"
}
traefik_here() { command -v traefik || printf '%s' "$TRAEFIK_BIN"; }

named() { sed -n 's/^[0-9a-f]\{64\}  \('"$1"'\)$/\1/p' "$WORK/SHA256SUMS" | head -n 1; }
sum_of() { awk -v file="$1" '$2 == file { print $1 }' "$WORK/SHA256SUMS"; }

# --- Steps: each one does only what is missing ---------------------------------------------------

plan() {
	STEPS=''
	PACKAGES=''
	has docker || PACKAGES="$PACKAGES docker.io"
	[ -x /usr/bin/docker-registry ] || PACKAGES="$PACKAGES docker-registry"
	for program in git rsync curl; do has "$program" || PACKAGES="$PACKAGES $program"; done
	has ssh || PACKAGES="$PACKAGES openssh-client"
	[ -z "$PACKAGES" ] || add_step "apt-get install$PACKAGES"
	NEEDS_TRAEFIK=''
	if ! is_traefik "$(traefik_here)"; then
		NEEDS_TRAEFIK=yes
		add_step "put $TRAEFIK at $TRAEFIK_BIN"
	fi
	NEEDS_BUILDX=''
	if ! has docker || ! docker buildx version >/dev/null 2>&1; then
		NEEDS_BUILDX=yes
		add_step "put ${BUILDX:-docker-buildx of the distribution} at $BUILDX_BIN, if the distribution has none"
	fi
	if [ "$(installed_version)" != "$VERSION" ]; then add_step "apt-get install $DEB"; fi
	add_step "berth install all --base-domain $BASE_DOMAIN --admin $ADMIN --start"
	add_step "wait until https://$BASE_DOMAIN answers"
}
add_step() { STEPS="$STEPS  $*
"; }

# Older ones pass forged identity headers on.
is_traefik() {
	[ -x "$1" ] || return 1
	"$1" version 2>/dev/null | awk '/^Version:/ { split($2, v, "."); sub(/^v/, "", v[1]); found = v[1] * 1000000 + v[2] * 1000 + v[3] >= 3007013 } END { exit !found }'
}
installed_version() { dpkg-query -W -f '${db:Status-Status} ${Version}' berth 2>/dev/null | sed -n 's/^installed //p'; }

# A fresh machine often runs its first upgrades. Standard input is this script.
apt() { DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" </dev/null; }

install_packages() {
	# An installation that was killed leaves packages unpacked.
	[ -z "$(dpkg --audit)" ] || DEBIAN_FRONTEND=noninteractive dpkg --configure -a </dev/null || true
	if [ -n "$PACKAGES" ]; then
		step "Packages of the distribution:$PACKAGES"
		update_lists
		# The client is a package of its own on Debian 13, and only recommended.
		case $PACKAGES in *docker.io*) ! apt-cache show docker-cli >/dev/null 2>&1 || PACKAGES="$PACKAGES docker-cli" ;; esac
		# One argument for each name.
		# shellcheck disable=SC2086
		apt install $PACKAGES
		# It listens on all interfaces, without a password. `berth install` starts a registry of its own.
		case $PACKAGES in *docker-registry*) systemctl disable --now docker-registry >/dev/null 2>&1 || true ;; esac
	fi
	systemctl enable --now docker >/dev/null 2>&1 || true
	docker version >/dev/null 2>&1 ||
		fail 'the container engine does not start. Look at: journalctl -u docker. Then run this again'
}

# The lock of the lists has no waiting time of its own.
update_lists() {
	tries=0
	until apt update; do
		tries=$((tries + 1))
		[ "$tries" -lt 20 ] || fail 'apt-get update fails, see above. Solve that, then run this again'
		sleep 10
	done
}

install_programs() {
	if [ -n "$NEEDS_TRAEFIK" ]; then
		install_program "$TRAEFIK" "$TRAEFIK_BIN"
		# The package of Berth does not restart it.
		systemctl try-restart berth-proxy >/dev/null 2>&1 || true
	fi
	[ -n "$NEEDS_BUILDX" ] || return 0
	docker buildx version >/dev/null 2>&1 && return 0
	if [ -n "$BUILDX" ]; then
		install_program "$BUILDX" "$BUILDX_BIN"
	else
		apt install docker-buildx
	fi
}

install_program() {
	step "$2"
	download "$1"
	mkdir -p "$(dirname "$2")"
	# A program that runs cannot be overwritten.
	install -m 0755 "$CACHE/$1" "$2.new"
	mv -f "$2.new" "$2"
	rm -f "$CACHE/$1"
}

install_berth() {
	[ "$(installed_version)" != "$VERSION" ] || return 0
	step "Berth $VERSION"
	download "$DEB"
	apt install "$CACHE/$DEB"
	rm -f "$CACHE/$DEB"
}

fetch() {
	case $RELEASE in
	https://*) download_url "$@" --proto-redir =https ;;
	http://*) download_url "$@" ;;
	*) cp "$RELEASE/$1" "$2" ;;
	esac
}

download_url() {
	name=$1
	target=$2
	shift 2
	curl -fsSL --retry 3 --connect-timeout 20 --speed-limit 1000 --speed-time 60 "$@" -o "$target" "$RELEASE/$name"
}

# Keeps a file of an earlier run whose sum is right.
download() {
	mkdir -p "$CACHE"
	expected=$(sum_of "$1")
	if ! is_sum "$expected" "$CACHE/$1"; then
		fetch "$1" "$CACHE/$1.part" || fail "$RELEASE/$1 cannot be fetched. Run this again: it goes on here"
		is_sum "$expected" "$CACHE/$1.part" || {
			rm -f "$CACHE/$1.part"
			fail "$RELEASE/$1 does not have the sum of SHA256SUMS ($expected). It was not used"
		}
		mv "$CACHE/$1.part" "$CACHE/$1"
	fi
}
is_sum() { [ -f "$2" ] && [ "$(sha256sum "$2" | cut -d ' ' -f 1)" = "$1" ]; }

# --- The end -------------------------------------------------------------------------------------

wait_until_ready() {
	step "Waiting until https://$BASE_DOMAIN answers with a certificate (at most $((READY_SECONDS / 60)) minutes)"
	end=$(($(date +%s) + READY_SECONDS))
	# Another server can answer at this name: a parking page, or the one before.
	until curl -fsS --max-time 10 "https://$BASE_DOMAIN/install.sh" 2>"$WORK/error" | grep -q 'Installs Berth'; do
		if [ "$(date +%s)" -ge "$end" ]; then
			why=$(tail -n 1 "$WORK/error")
			printf '%s\n' "Berth runs, but at https://$BASE_DOMAIN it does not answer from here: ${why:-another server does}" \
				"Check that $BASE_DOMAIN and *.$BASE_DOMAIN lead to this machine and that ports 80 and 443 are reachable from the internet." \
				'Then look at: berth doctor, journalctl -u berth-proxy' >&2
			exit 1
		fi
		sleep 3
	done
	step "Berth is ready: https://$BASE_DOMAIN"
	say "sign in as $ADMIN with the password in /etc/berth/secrets/control-plane/ADMIN_PASSWORD, and change it"
	say "berth for your computer, with Node.js 24: $RELEASE/berth-cli_$VERSION.js"
	say "first project there: berth login https://$BASE_DOMAIN --email $ADMIN; then berth deploy in its folder"
}

main "$@"
