# rpm has no purge: recordings, the account and changed configuration are kept; remove them by hand.
# In an upgrade the new program is installed at this point, and the service still runs the previous
# one. If the new version rejects the configuration, the service keeps running: a scriptlet must not
# fail, so it reports this and exits with 0.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    if [ "$1" -ge 1 ]; then
        if mistakes=$(CONFIGURATION_DIRECTORY=/etc/flatcap /usr/bin/flatcap check-config 2>&1 >/dev/null); then
            systemctl try-restart flatcap.service || :
        else
            printf '%s\n' "$mistakes" >&2
            echo "flatcap: this version rejects the configuration, so the service is not restarted; correct it, then: systemctl restart flatcap" >&2
        fi
    fi
fi
