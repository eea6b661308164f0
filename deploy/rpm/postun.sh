# An rpm has no purge: recordings, the account and changed configuration stay; remove them by hand.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    if [ "$1" -ge 1 ]; then systemctl try-restart flatcap.service || :; fi
fi
