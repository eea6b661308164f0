//! The names that people use for a control group: systemd unit, container and pod. They follow from
//! the path of the group, because service managers and container runtimes name groups by rules.

/// Minimum length of the id of a container in the name of a group.
const ID_CHARS_MIN: usize = 12;
/// Length of the id of a container where nothing else shows that it is one.
const WHOLE_ID_CHARS: usize = 64;
/// Prefixes of scopes of containers.
const SCOPE_PREFIXES: [&str; 5] = ["docker-", "cri-containerd-", "crio-", "libpod-", "nerdctl-"];
/// Endings of the names of units that contain processes.
const UNIT_TYPES: [&str; 6] = [".service", ".scope", ".socket", ".mount", ".swap", ".automount"];

/// The names of a control group. Each is absent if the path does not contain it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct GroupNames {
    /// The innermost systemd unit, as `systemctl` prints it. It is absent in a container.
    pub(super) unit: Option<String>,
    /// The id or name of the container.
    pub(super) container: Option<String>,
    /// The id of the pod.
    pub(super) pod: Option<String>,
}

impl GroupNames {
    /// Returns the names in the path of a group.
    pub(super) fn of(path: &str) -> Self {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let pod = parts.iter().rev().find_map(|part| pod_in(part));
        let container = (0..parts.len()).rev().find_map(|at| {
            let parent = at.checked_sub(1).and_then(|before| parts.get(before));
            container_in(parts.get(at)?, parent.copied(), pod.is_some())
        });
        // The unit around containers belongs to the container runtime and does not name them.
        let unit = if container.is_some() || pod.is_some() { None } else { unit_in(&parts) };
        Self { unit, container, pod }
    }
}

/// Returns the innermost unit. The manager of a user's services has a scope of its own below its
/// service.
fn unit_in(parts: &[&str]) -> Option<String> {
    let units = parts.iter().rev().filter(|part| UNIT_TYPES.iter().any(|own| part.ends_with(own)));
    let mut units = units.map(|part| part.strip_prefix('_').unwrap_or(part));
    let innermost = units.next()?;
    let outer = if innermost == "init.scope" { units.next() } else { None };
    Some(outer.unwrap_or(innermost).to_owned())
}

/// Returns the id of a pod, whose separators are underscores in the name of a slice:
/// `kubepods-burstable-pod1234_5678.slice`, or `pod1234-5678`.
fn pod_in(part: &str) -> Option<String> {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let id = match name.rsplit_once("-pod") {
        Some((before, id)) if before.contains("kubepods") => id,
        _ => name.strip_prefix("pod")?,
    };
    let is_id = |character: char| character.is_ascii_hexdigit() || matches!(character, '-' | '_');
    (id.len() >= ID_CHARS_MIN && id.chars().all(is_id)).then(|| id.replace('_', "-"))
}

/// Returns the container that a part of a path names.
fn container_in(part: &str, parent: Option<&str>, is_in_pod: bool) -> Option<String> {
    let scope = part.strip_suffix(".scope");
    let of_scope = scope.and_then(|name| {
        SCOPE_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).filter(|id| is_id(id))
    });
    if let Some(id) = of_scope {
        return Some(id.to_owned());
    }
    // containerd writes `slice:prefix:id` without the systemd driver, and LXC has a prefix.
    if let Some(id) = part.rsplit_once(':').map(|(_, id)| id).filter(|id| is_id(id)) {
        return Some(id.to_owned());
    }
    if let Some(name) = part.strip_prefix("lxc.payload.") {
        return Some(name.to_owned());
    }
    let is_named_by_parent = match parent? {
        "docker" | "buildkit" | "garden" => is_id(part),
        "lxc" | "lxc.payload" => true,
        parent => {
            let is_whole = part.len() == WHOLE_ID_CHARS && is_id(part);
            is_whole || (is_in_pod && pod_in(parent).is_some() && is_id(part))
        }
    };
    is_named_by_parent.then(|| part.to_owned())
}

/// Returns whether this is the id of a container, in full or shortened.
fn is_id(text: &str) -> bool {
    text.len() >= ID_CHARS_MIN && text.chars().all(|character| character.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4f5e6d7c8b9a0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796";

    // Proves that units have the names that systemctl prints, whatever is below or around them.
    #[test]
    fn units_are_named() {
        for (path, unit) in [
            ("/system.slice/shardd@3.service", Some("shardd@3.service")),
            ("/system.slice/system-getty.slice/getty@tty1.service", Some("getty@tty1.service")),
            (
                "/system.slice/system-postgresql.slice/postgresql@16-main.service",
                Some("postgresql@16-main.service"),
            ),
            ("/system.slice/foo.service/worker", Some("foo.service")),
            ("/user.slice/user-1000.slice/session-3.scope", Some("session-3.scope")),
            ("/user.slice/user-1000.slice/user@1000.service/init.scope", Some("user@1000.service")),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.gnome.Terminal-12.scope",
                Some("app-org.gnome.Terminal-12.scope"),
            ),
            ("/machine.slice/machine-qemu\\x2d1\\x2dvm.scope", Some("machine-qemu\\x2d1\\x2dvm.scope")),
            (
                "/system.slice/systemd-cryptsetup@dm\\x2dcrypt.service",
                Some("systemd-cryptsetup@dm\\x2dcrypt.service"),
            ),
            ("/system.slice/dev-disk-by\\x2duuid-1.swap", Some("dev-disk-by\\x2duuid-1.swap")),
            ("/system.slice/_cpu.service", Some("cpu.service")),
            ("/init.scope", Some("init.scope")),
            ("/system.slice/docker.service", Some("docker.service")),
            ("/machine.slice/libpod-conmon-4f5e6d7c8b9a.scope", Some("libpod-conmon-4f5e6d7c8b9a.scope")),
            ("/system.slice", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(
                GroupNames::of(path),
                GroupNames { unit: unit.map(str::to_owned), ..GroupNames::default() },
                "{path}"
            );
        }
    }

    // Proves that the containers and pods of each runtime are found, with either cgroup driver.
    #[test]
    fn containers_and_pods_are_named() {
        let pod = Some("0a1b2c3d-1111-2222-3333-444455556666");
        for (path, container, pod) in [
            (format!("/system.slice/docker-{ID}.scope"), Some(ID), None),
            (format!("/docker/{ID}"), Some(ID), None),
            (format!("/docker/{ID}/child"), Some(ID), None),
            (format!("/machine.slice/libpod-{ID}.scope/container"), Some(ID), None),
            (
                format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"),
                Some(ID),
                None,
            ),
            (
                format!(
                    "/kubepods.slice/kubepods-burstable.slice/\
                     kubepods-burstable-pod0a1b2c3d_1111_2222_3333_444455556666.slice/cri-containerd-{ID}.scope"
                ),
                Some(ID),
                pod,
            ),
            (
                format!(
                    "/kubepods.slice/kubepods-pod0a1b2c3d_1111_2222_3333_444455556666.slice/crio-{ID}.scope/container"
                ),
                Some(ID),
                pod,
            ),
            (
                format!(
                    "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/\
                     kubelet-kubepods-besteffort-pod0a1b2c3d_1111_2222_3333_444455556666.slice/cri-containerd-{ID}.scope"
                ),
                Some(ID),
                pod,
            ),
            (format!("/kubepods/besteffort/pod0a1b2c3d-1111-2222-3333-444455556666/{ID}"), Some(ID), pod),
            (
                format!("/system.slice/k3s.service/kubepods/pod0a1b2c3d-1111-2222-3333-444455556666/{ID}"),
                Some(ID),
                pod,
            ),
            ("/kubepods/pod0a1b2c3d-1111-2222-3333-444455556666".to_owned(), None, pod),
            (
                format!("/system.slice/containerd.service/kubepods-besteffort-x.slice:cri-containerd:{ID}"),
                Some(ID),
                None,
            ),
            (format!("/ecs/0123456789abcdef/{ID}"), Some(ID), None),
            ("/lxc/web1".to_owned(), Some("web1"), None),
            ("/lxc.payload.web1/system.slice/nginx.service".to_owned(), Some("web1"), None),
            ("/lxc/web1/system.slice/nginx.service".to_owned(), Some("web1"), None),
        ] {
            let expected = GroupNames {
                unit: None,
                container: container.map(str::to_owned),
                pod: pod.map(str::to_owned),
            };
            assert_eq!(GroupNames::of(&path), expected, "{path}");
        }
    }
}
