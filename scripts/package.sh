#!/usr/bin/env bash
# Builds all packages in target/package: flatcap_VERSION-1_ARCH.deb, flatcap-VERSION-1.ARCH.rpm, and
# the static program with its archive flatcap-VERSION-linux-ARCH.tar.gz, and the wheel of the Python
# package. Needs the Rust toolchain, Python 3 and, for the static build, Debian's musl-tools; maturin,
# which builds the wheel, is installed in target/tools.
#
#   --version-suffix TEXT   ~old makes a version before this one, +new one after it: tests upgrades
#   --profile PROFILE       dev instead of dist: quick, for tests of the packages
#   --no-static             skip the static program and its archive
#   --static-rust VERSION   build the static program with this version of Rust
#   --no-python             skip the wheel
#   --arch aarch64          also build the static program and its archive for this one; needs Debian's
#                           gcc-aarch64-linux-gnu and libc6-dev-arm64-cross. No .deb and no .rpm:
#                           their program is linked with the host's own C library
set -euo pipefail
cd "$(dirname "$0")/.."

cargo_deb_version=3.8.0
cargo_generate_rpm_version=0.21.1
suffix=
profile=dist
static=yes
static_rust=
python=yes
maturin_version=1.16.0
others=()
while [ $# -gt 0 ]; do
    case $1 in
        --version-suffix) suffix=$2; shift 2 ;;
        --profile) profile=$2; shift 2 ;;
        --no-static) static=; shift ;;
        --static-rust) static_rust=$2; shift 2 ;;
        --no-python) python=; shift ;;
        --arch) others+=("$2"); shift 2 ;;
        *) echo "scripts/package.sh: unknown argument $1" >&2; exit 2 ;;
    esac
done

# Builds in target/ unless the environment names another directory; cargo's directory of profile dev
# is called debug.
built=${CARGO_TARGET_DIR:-target}
folder=$profile
[ "$profile" = dev ] && folder=debug
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)$suffix
target=$(rustc -vV | sed -n 's/^host: //p')
arch=${target%%-*}
package=target/package
stage=$package/stage

# All times in the packages are the time of the last commit, so that the same state gives the same
# packages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
export SOURCE_DATE_EPOCH
date=$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)

# `packaged` is a feature of flatcap, and `nats` of flatcap-ship, whose messages are off until they are
# configured. Cargo ignores `flatcap-ship/nats` here.
programs=(--package flatcap --package flatcap-convert --package flatcap-ship --features packaged,nats)

# Programs that are not optimized are large: xz would take a minute, gzip's best level half of one,
# and the zstd of the .rpm, which is not optimized either, three.
compression=() rpm_compression=() level=9
if [ "$profile" = dev ]; then compression=(--fast) rpm_compression=(--payload-compress none) level=1; fi

compress() { # FILE: as Debian requires, without name and time
    gzip -9n "$1"
}

stage_all() {
    rm -rf "$stage"
    mkdir -p "$stage/doc" "$stage/man"
    cp "$built/$folder/flatcap" "$built/$folder/flatcap-convert" "$built/$folder/flatcap-ship" "$stage/"
    strip "$stage/flatcap" "$stage/flatcap-convert" "$stage/flatcap-ship"
    "$stage/flatcap" manual "$stage/man" --date "$date" >/dev/null
    for page in "$stage"/man/*; do
        mkdir -p "$stage/man${page##*.}"
        mv "$page" "$stage/man${page##*.}/"
    done
    rmdir "$stage/man"
    for page in "$stage"/man?/*; do compress "$page"; done
    "$stage/flatcap" completions bash >"$stage/flatcap.bash"
    "$stage/flatcap" completions zsh >"$stage/_flatcap"
    "$stage/flatcap" completions fish >"$stage/flatcap.fish"
    cp README.md docs/OPERATIONS.md docs/COOKBOOK.md docs/SOURCES.md docs/METRICS.md docs/FORMAT.md docs/LAKE.md docs/PAGE.md docs/PUSH.md "$stage/doc/"
    cp CHANGELOG.md "$stage/doc/changelog"
    python3 scripts/third_party.py "$target" >"$stage/doc/third-party-licenses"
    for text in "$stage"/doc/*; do compress "$text"; done
    # Examples, the same in every package.
    mkdir "$stage/examples"
    cp config/flatcap.toml config/minimal.toml config/triggers.toml deploy/flatcap-notify-reload.conf \
        deploy/flatcap-scheduler.conf deploy/flatcap-kmsg.conf "$stage/examples/"
    cp deploy/lake/ship.toml "$stage/examples/ship.toml"
    cp deploy/lake/delta.py "$stage/examples/lake-delta.py"
    for engine in duckdb spark datafusion trino; do
        cp "deploy/lake/$engine.sql" "$stage/examples/lake-$engine.sql"
    done
    cp deploy/grafana/flatcap.json "$stage/examples/grafana.json"
    cp deploy/grafana/flatcap-ship.json "$stage/examples/grafana-ship.json"
    cp deploy/prometheus/alerts.yaml "$stage/examples/prometheus-alerts.yaml"
    cp deploy/prometheus/ship-alerts.yaml "$stage/examples/prometheus-ship-alerts.yaml"
    cp deploy/container/daemonset.yaml "$stage/examples/kubernetes-daemonset.yaml"
    cp deploy/container/podmonitor.yaml "$stage/examples/kubernetes-podmonitor.yaml"
    cat >"$stage/changelog.Debian" <<END
flatcap ($version-1) unstable; urgency=medium

  * The changes are listed in changelog.gz beside this file.

 -- flatcap engineers <flatcap@packages.invalid>  $(date -u -d "@$SOURCE_DATE_EPOCH" -R)
END
}

# ARCH FOLDER: builds the program without shared libraries, or reports why it cannot.
static_program() {
    local arch=$1 folder_of=$package/$2 musl=$1-unknown-linux-musl strip=strip
    # rustup reads the version from the environment, too.
    local -x RUSTUP_TOOLCHAIN=${static_rust:-$(rustup show active-toolchain | cut -d' ' -f1)}
    if ! { rustc --version || rustup toolchain install "$RUSTUP_TOOLCHAIN" --profile minimal; } >/dev/null 2>&1 ||
        ! { rustup target list --installed | grep -qx "$musl" || rustup target add "$musl"; } >/dev/null 2>&1; then
        echo "skipped: no static program, cannot install Rust $RUSTUP_TOOLCHAIN for $musl"
        return
    fi
    if [ "$arch" != "${target%%-*}" ]; then
        local cross=$arch-linux-gnu variable=${musl//-/_}
        if ! command -v "$cross-gcc" >/dev/null; then
            echo "skipped: no static program for $arch, $cross-gcc is not installed"
            return
        fi
        # Rust ships musl and links with it. The C code among the dependencies (zstd) uses nothing
        # from glibc's headers that musl lacks, except the fortified functions, which this disables.
        export "CARGO_TARGET_${variable^^}_LINKER=$cross-gcc" "CC_$variable=$cross-gcc" "CFLAGS_$variable=-U_FORTIFY_SOURCE"
        strip=$cross-strip
    fi
    cargo build --quiet --locked "${programs[@]}" --target "$musl" --profile "$profile"
    mkdir -p "$folder_of"
    local program
    for program in flatcap flatcap-convert flatcap-ship; do
        cp "$built/$musl/$folder/$program" "$folder_of/$program"
        "$strip" "$folder_of/$program"
        if readelf --dynamic "$folder_of/$program" | grep -q NEEDED; then
            echo "$folder_of/$program needs shared libraries" >&2
            exit 1
        fi
    done
    mkdir -p "$folder_of/empty"
    local name=flatcap-$version-linux-$arch
    rm -rf "${package:?}/$name"
    mkdir -p "$package/$name"
    cp "$folder_of/flatcap" "$folder_of/flatcap-convert" "$folder_of/flatcap-ship" \
        deploy/flatcap.toml deploy/flatcap*.service deploy/flatcap.sysusers deploy/flatcap.tmpfiles \
        README.md LICENSE-APACHE LICENSE-MIT "$stage/doc/third-party-licenses.gz" "$package/$name/"
    cp -r "$stage"/man? "$stage/flatcap.bash" "$stage/_flatcap" "$stage/flatcap.fish" "$package/$name/"
    mkdir "$package/$name/doc"
    cp docs/OPERATIONS.md docs/COOKBOOK.md docs/SOURCES.md docs/METRICS.md docs/FORMAT.md docs/LAKE.md docs/PAGE.md docs/PUSH.md CHANGELOG.md \
        "$package/$name/doc/"
    cp -r "$stage/examples" "$package/$name/examples"
    tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --directory "$package" "$name" |
        gzip "-${level}n" >"$package/$name.tar.gz"
    rm -rf "${package:?}/$name"
}

# Builds the wheel of the Python package, or reports why it cannot.
wheel() {
    local venv=target/tools/maturin
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv" || { echo "skipped: no wheel, cannot create a virtual environment"; return; }
    if ! "$venv/bin/pip" install --quiet "maturin==$maturin_version"; then
        echo "skipped: no wheel, cannot install maturin"
        return
    fi
    python3 scripts/third_party.py "$target" python/Cargo.toml >python/flatcap/third-party-licenses.txt
    # Beside the programs, whose dependencies need not be built again.
    CARGO_TARGET_DIR=$(realpath -m "$built") "$venv/bin/maturin" build --quiet --locked --profile "$profile" \
        --compatibility linux --manifest-path python/Cargo.toml --out "$package"
}

deb=$(scripts/tool.sh cargo-deb "$cargo_deb_version" --no-default-features)
# The packages' SHA-3, not optimized, would take a minute.
rpm=$(scripts/tool.sh cargo-generate-rpm "$cargo_generate_rpm_version" --no-default-features \
    --config profile.dev.package.keccak.opt-level=3 --config profile.dev.package.sha3.opt-level=3)
cargo build --quiet --locked "${programs[@]}" --profile "$profile"
stage_all
"$deb" --quiet --no-build --no-strip ${compression[@]+"${compression[@]}"} --deb-version "$version-1" --output "$package/"
"$rpm" --target-dir target ${rpm_compression[@]+"${rpm_compression[@]}"} --set-metadata "version = \"$version\"" \
    --source-date "$SOURCE_DATE_EPOCH" --output "$package/" >/dev/null
[ -z "$static" ] || static_program "$arch" static
[ -z "$python" ] || wheel
for other in ${others[@]+"${others[@]}"}; do static_program "$other" "static-$other"; done
ls -l "$package"/*.deb "$package"/*.rpm "$package"/*.tar.gz "$package"/*.whl 2>/dev/null || true
