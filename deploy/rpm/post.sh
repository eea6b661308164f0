# Creates the account and the directory, then applies the distribution's preset for new services (on
# Fedora: not started).
mkdir -p /etc/flatcap/conf.d
command -v systemd-sysusers >/dev/null && systemd-sysusers flatcap.conf || :
command -v systemd-tmpfiles >/dev/null && systemd-tmpfiles --create flatcap.conf || :
if [ "$1" -eq 1 ] && command -v systemctl >/dev/null; then
    systemctl --no-reload preset flatcap.service || :
fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload || :; fi
