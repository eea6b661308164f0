# 0: the package is removed. In an upgrade the service keeps running until postun restarts it.
if [ "$1" -eq 0 ] && command -v systemctl >/dev/null; then
    if [ -d /run/systemd/system ]; then
        systemctl --no-reload disable --now flatcap.service || :
    else
        systemctl --no-reload disable flatcap.service || :
    fi
fi
