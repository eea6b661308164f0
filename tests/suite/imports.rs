//! The import graph: which file uses which, by their `use` lines and paths.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A module path below the crate: `["segment", "reader"]`; the crate itself is empty.
type ModulePath = Vec<String>;

/// Maximum number of re-exports from a name to its definition.
const REEXPORTS_MAX: usize = 8;

/// The shipped files of a crate.
pub struct ImportGraph {
    modules: BTreeMap<ModulePath, Module>,
}

struct Module {
    path: PathBuf,
    /// Names in scope by `use`, with the path that each stands for and whether it is re-exported.
    uses: Vec<Import>,
    /// Paths in the code that begin with `crate`, `super` or `self`.
    paths: Vec<ModulePath>,
}

struct Import {
    name: String,
    path: ModulePath,
    is_public: bool,
}

impl ImportGraph {
    /// Reads the graph of files, given by their paths below `src` and their shipped text.
    pub fn new(files: impl IntoIterator<Item = (PathBuf, String)>) -> Self {
        let modules = files.into_iter().map(|(path, text)| {
            let text = without_comments_and_texts(&text);
            let uses = uses(&text);
            (module_path(&path), Module { paths: paths(&text), path, uses })
        });
        Self { modules: modules.collect() }
    }

    /// Number of imports of a file by another.
    pub fn imports(&self) -> usize {
        self.modules.keys().map(|from| self.imported(from).len()).sum()
    }

    /// Groups of files that import each other, directly or through others.
    pub fn cycles(&self) -> Vec<Vec<&Path>> {
        let reached: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> =
            self.modules.keys().map(|from| (from, self.reachable(from))).collect();
        let mut cycles = BTreeSet::new();
        for (from, reach) in &reached {
            if reach.contains(from) {
                let members = reach.iter().filter(|to| reached[*to].contains(from));
                cycles.insert(members.map(|to| self.modules[*to].path.as_path()).collect::<Vec<_>>());
            }
        }
        cycles.into_iter().collect()
    }

    /// All modules that a module imports, directly or through others.
    fn reachable(&self, from: &ModulePath) -> BTreeSet<&ModulePath> {
        let mut found = BTreeSet::new();
        let mut open: Vec<&ModulePath> = self.imported(from).into_iter().collect();
        while let Some(next) = open.pop() {
            if found.insert(next) {
                open.extend(self.imported(next));
            }
        }
        found
    }

    /// The modules that a module imports. A re-export is no import: the module does not use it.
    fn imported(&self, from: &ModulePath) -> BTreeSet<&ModulePath> {
        let module = &self.modules[from];
        let used = module.uses.iter().filter(|import| !import.is_public).map(|import| &import.path);
        let paths = used.chain(&module.paths).filter_map(|path| self.absolute(from, path));
        paths.filter_map(|path| self.defining(&path, 0)).filter(|to| *to != from).collect()
    }

    /// Returns a path in a module as a path from the crate's root, or `None` for other crates.
    fn absolute(&self, from: &ModulePath, path: &[String]) -> Option<ModulePath> {
        let (first, rest) = path.split_first()?;
        let mut base = from.clone();
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([&base, rest].concat()),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                base.truncate(base.len().checked_sub(ups)?);
                Some([base.as_slice(), &path[ups..]].concat())
            }
            _ => {
                base.push(first.clone());
                self.modules.contains_key(&base).then(|| [&base, rest].concat())
            }
        }
    }

    /// The module that defines what a path names, past re-exports.
    fn defining(&self, path: &[String], depth: usize) -> Option<&ModulePath> {
        if depth > REEXPORTS_MAX {
            return None;
        }
        let at = (0..=path.len()).rev().find(|at| self.modules.contains_key(&path[..*at]))?;
        let (module, definition) = self.modules.get_key_value(&path[..at])?;
        let Some(name) = path.get(at) else { return Some(module) };
        let Some(import) = definition.uses.iter().find(|import| import.name == *name) else {
            return Some(module);
        };
        let path = [self.absolute(module, &import.path)?.as_slice(), &path[at + 1..]].concat();
        self.defining(&path, depth + 1)
    }
}

fn module_path(path: &Path) -> ModulePath {
    let mut parts: ModulePath =
        path.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    parts.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
    parts
}

/// The code of a file. Comments and the content of literals become nothing.
fn without_comments_and_texts(text: &str) -> String {
    let mut code = String::new();
    for line in text.lines() {
        let mut is_text = false;
        let mut rest = line.char_indices();
        while let Some((at, c)) = rest.next() {
            match c {
                '\\' if is_text => drop(rest.next()),
                '"' if !line[..at].ends_with('\'') => is_text = !is_text,
                '/' if !is_text && line[at..].starts_with("//") => break,
                _ if !is_text => code.push(c),
                _ => {}
            }
        }
        code.push('\n');
    }
    code
}

/// The `use` declarations of a file.
fn uses(code: &str) -> Vec<Import> {
    let mut found = Vec::new();
    let starts = code.match_indices("use ").filter(|(at, _)| {
        let line = code[..*at].rsplit('\n').next().unwrap().trim();
        line.is_empty() || line == "pub" || line.starts_with("pub(") && line.ends_with(')')
    });
    for (at, start) in starts {
        let is_public = !code[..at].rsplit('\n').next().unwrap().trim().is_empty();
        let Some((tree, _)) = code[at + start.len()..].split_once(';') else { continue };
        let tree: String = tree.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut leaves = Vec::new();
        flatten(&tree, &[], &mut leaves);
        found.extend(leaves.into_iter().map(|(name, path)| Import { name, path, is_public }));
    }
    found
}

/// The leaves of a tree such as `a::{b, c::{self, d as e}}`.
fn flatten(tree: &str, prefix: &[String], leaves: &mut Vec<(String, ModulePath)>) {
    let tree = tree.trim();
    let split = |text: &str| -> ModulePath {
        text.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    if let Some((head, inner)) = tree.split_once('{') {
        let prefix = [prefix, &split(head)].concat();
        let (mut depth, mut begin) = (0, 0);
        let inner = inner.strip_suffix('}').unwrap_or(inner);
        for (at, c) in inner.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    flatten(&inner[begin..at], &prefix, leaves);
                    begin = at + 1;
                }
                _ => {}
            }
        }
        flatten(&inner[begin..], &prefix, leaves);
    } else if !tree.is_empty() {
        let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias)));
        let mut path = [prefix, &split(path)].concat();
        path.pop_if(|last| last == "self");
        let name = alias.or(path.last().map(String::as_str)).unwrap_or_default().to_owned();
        leaves.push((name, path));
    }
}

/// Paths in code, other than `use` declarations, that begin with `crate`, `super` or `self`.
fn paths(code: &str) -> Vec<ModulePath> {
    let mut found = Vec::new();
    for line in code.lines().filter(|line| !line.trim_start().starts_with("use ")) {
        for start in ["crate::", "super::", "self::"] {
            for (at, _) in line.match_indices(start) {
                if line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                    continue;
                }
                let path: String =
                    line[at..].chars().take_while(|c| c.is_alphanumeric() || "_:".contains(*c)).collect();
                found.push(path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect());
            }
        }
    }
    found
}

// Proves that the graph finds a cycle over a re-export and through a path, and takes no re-export
// for an import.
#[test]
fn a_cycle_is_found() {
    let file = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
    let graph = ImportGraph::new([
        file("lib.rs", "pub mod a;\npub mod b;\nmod c;\n"),
        file("a/mod.rs", "mod x;\nmod y;\npub use x::X;\npub use self::y::{self as other, Y};\n"),
        file("a/x.rs", "use super::Y;\npub struct X(Y);\n"),
        file(
            "a/y.rs",
            "// super::super::b\npub struct Y;\nfn f() { let _ = super::X::new(\"crate::b\"); }\n",
        ),
        file("b.rs", "use crate::{\n    a::X,\n    c::{self, C},\n};\npub struct B(X);\n"),
        file("c.rs", "pub struct C;\n"),
    ]);
    let cycle = vec![Path::new("a/x.rs"), Path::new("a/y.rs")];
    assert_eq!(graph.cycles(), [cycle]);
}
