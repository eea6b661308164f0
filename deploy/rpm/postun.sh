# An rpm has no purge: recordings, the account and changed configuration stay; remove them by hand.
# At an upgrade the new program is in place by now, and the service still runs the one before it. A configuration that the new one refuses
# leaves it at work: a scriptlet must not fail, so this says it and ends with 0.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    if [ "$1" -ge 1 ]; then
        if mistakes=$(CONFIGURATION_DIRECTORY=/etc/flatcap /usr/bin/flatcap check-config 2>&1 >/dev/null); then
            systemctl try-restart flatcap.service || :
        else
            printf '%s\n' "$mistakes" >&2
            echo "flatcap: this version refuses the configuration, so the service is not restarted; correct it, then: systemctl restart flatcap" >&2
        fi
    fi
fi
