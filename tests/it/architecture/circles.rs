//! Which file of a crate uses which, and the circles among them.
//!
//! A file uses another when its code names an item that the other defines, whatever re-exports lead there. Declaring a
//! module and handing its items on (`pub use`) is no use: a folder's `mod.rs` may be its front door.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, is_word};

/// The files of one crate by their module paths, without those that exist for tests only.
pub struct Files<'a> {
    sources: Vec<&'a Source>,
    modules: BTreeMap<Vec<String>, usize>,
    uses: Vec<Vec<Use>>,
    defined: Vec<BTreeSet<String>>,
}

/// One path of a `use` declaration.
#[derive(Clone, Debug)]
struct Use {
    /// Handed on to others.
    public: bool,
    path: Vec<String>,
    /// The name under which the file knows it.
    name: String,
}

/// What a path leads to.
enum Found {
    /// An item, or a module as such, that this file defines.
    File(usize),
    /// Nothing of this crate.
    Elsewhere,
}

impl<'a> Files<'a> {
    pub fn new(sources: impl IntoIterator<Item = &'a Source>) -> Files<'a> {
        let sources: Vec<&Source> = sources.into_iter().filter(|source| !source.is_test()).collect();
        let modules = sources.iter().enumerate().map(|(at, source)| (module(&source.path), at)).collect();
        let uses = sources.iter().map(|source| declared_uses(&source.code())).collect();
        let defined = sources.iter().map(|source| definitions(&source.code())).collect();
        Files { sources, modules, uses, defined }
    }

    /// The files of each circle, sorted.
    pub fn circles(&self) -> Vec<Vec<&'a str>> {
        let edges: Vec<BTreeSet<usize>> = (0..self.sources.len()).map(|at| self.used_by(at)).collect();
        let reached: Vec<BTreeSet<usize>> = (0..edges.len()).map(|at| reachable(at, &edges)).collect();
        let mut circles = BTreeSet::new();
        for (at, others) in reached.iter().enumerate().filter(|(at, others)| others.contains(at)) {
            let members = others.iter().filter(|&&other| reached[other].contains(&at));
            let mut paths: Vec<&str> = members.map(|&other| self.sources[other].path.as_str()).collect();
            paths.sort_unstable();
            circles.insert(paths);
        }
        circles.into_iter().collect()
    }

    /// What ties a circle together: who uses whom.
    pub fn ties(&self, circle: &[&str]) -> Vec<String> {
        let at = |path: &str| self.sources.iter().position(|source| source.path == path);
        let mut ties = Vec::new();
        for from in circle.iter().filter_map(|path| at(path)) {
            for to in self.used_by(from) {
                if circle.contains(&self.sources[to].path.as_str()) {
                    ties.push(format!("{} -> {}", self.sources[from].path, self.sources[to].path));
                }
            }
        }
        ties
    }

    fn used_by(&self, at: usize) -> BTreeSet<usize> {
        let home = module(&self.sources[at].path);
        let declared = self.uses[at].iter().filter(|used| !used.public).map(|used| used.path.clone());
        let inline = inline_paths(&self.sources[at].code());
        let found = declared.chain(inline).filter_map(|path| match self.resolve(&home, &path, 0) {
            Found::File(file) if file != at => Some(file),
            Found::File(_) | Found::Elsewhere => None,
        });
        found.collect()
    }

    /// The file that defines what `path` means in the module `home`.
    fn resolve(&self, home: &[String], path: &[String], depth: usize) -> Found {
        // Two re-exports that name each other would not compile; this only bounds a mistake in reading them.
        const DEEPEST: usize = 12;
        let Some((first, rest)) = path.split_first().filter(|_| depth < DEEPEST) else { return Found::Elsewhere };
        let (mut module, rest) = match first.as_str() {
            "crate" => (Vec::new(), rest),
            "self" => (home.to_vec(), rest),
            "super" => {
                let supers = path.iter().take_while(|segment| *segment == "super").count();
                let Some(left) = home.len().checked_sub(supers) else { return Found::Elsewhere };
                (home[..left].to_vec(), &path[supers..])
            }
            child if self.modules.contains_key(&joined(home, child)) => (home.to_vec(), path),
            _ => return Found::Elsewhere,
        };
        let mut rest = rest;
        while let Some((segment, after)) = rest.split_first() {
            let below = joined(&module, segment);
            if !self.modules.contains_key(&below) {
                break;
            }
            (module, rest) = (below, after);
        }
        let Some(&file) = self.modules.get(&module) else { return Found::Elsewhere };
        let Some(item) = rest.first().filter(|item| !self.defined[file].contains(*item)) else {
            return Found::File(file);
        };
        match self.uses[file].iter().find(|used| used.name == *item && used.path != path) {
            Some(used) => self.resolve(&module, &used.path, depth + 1),
            // A variant, a macro, a glob: the file that it was looked for in.
            None => Found::File(file),
        }
    }
}

/// `a/mod.rs` is `[a]`, `a/b.rs` is `[a, b]`, the crate's root is empty.
fn module(path: &str) -> Vec<String> {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    if path == "lib" || path == "main" { Vec::new() } else { path.split('/').map(str::to_owned).collect() }
}

fn joined(module: &[String], segment: &str) -> Vec<String> {
    module.iter().cloned().chain([segment.to_owned()]).collect()
}

fn reachable(from: usize, edges: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(next) = open.pop() {
        open.extend(edges[next].iter().filter(|to| reached.insert(**to)));
    }
    reached
}

/// Names behind the words that define an item.
fn definitions(code: &str) -> BTreeSet<String> {
    const KEYWORDS: [&str; 9] = ["struct", "enum", "trait", "fn", "const", "static", "type", "union", "macro_rules"];
    let words: Vec<&str> = code.split(|c| !is_word(c)).filter(|word| !word.is_empty()).collect();
    let names = words.windows(2).filter(|pair| KEYWORDS.contains(&pair[0])).map(|pair| pair[1].to_owned());
    names.collect()
}

/// Where the `use` declarations of `code` stand: their beginnings and ends.
fn declarations(code: &str) -> Vec<(usize, usize)> {
    let starts = code.match_indices("use ").map(|(at, _)| at);
    let begins = |at: &usize| !code[..*at].ends_with(is_word);
    let whole = |at: usize| (at, code[at..].find(';').map_or(code.len(), |end| at + end + 1));
    starts.filter(begins).map(whole).collect()
}

fn declared_uses(code: &str) -> Vec<Use> {
    let mut uses = Vec::new();
    for (from, to) in declarations(code) {
        let before = code[..from].trim_end();
        let line = &before[before.rfind([';', '}', '{', ']']).map_or(0, |at| at + 1)..];
        let public = line.trim_start().starts_with("pub");
        spell_out(&code[from + "use ".len()..to - 1], &[], public, &mut uses);
    }
    uses
}

/// Each path of a tree such as `a::{b, c::{d, self as e}}`.
fn spell_out(tree: &str, prefix: &[String], public: bool, uses: &mut Vec<Use>) {
    let tree = tree.trim();
    if let Some((head, group)) = tree.split_once('{') {
        let prefix = extended(prefix, head);
        for part in split_at_commas(group.trim_end().trim_end_matches('}')) {
            spell_out(part, &prefix, public, uses);
        }
        return;
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias.trim())));
    let mut path = extended(prefix, path);
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
    }
    if let Some(last) = path.last() {
        let name = alias.unwrap_or(last).to_owned();
        uses.push(Use { public, name, path });
    }
}

fn extended(prefix: &[String], path: &str) -> Vec<String> {
    let segments = path.split("::").map(str::trim).filter(|segment| !segment.is_empty() && *segment != "*");
    prefix.iter().cloned().chain(segments.map(str::to_owned)).collect()
}

/// The parts of a group, whose own groups are left whole.
fn split_at_commas(group: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0usize, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&group[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[from..]);
    parts.into_iter().filter(|part| !part.trim().is_empty()).collect()
}

/// Paths of two segments and more outside `use` declarations.
fn inline_paths(code: &str) -> Vec<Vec<String>> {
    let mut rest = String::with_capacity(code.len());
    let mut at = 0;
    for (from, to) in declarations(code) {
        if from >= at {
            rest.push_str(&code[at..from]);
            at = to;
        }
    }
    rest.push_str(&code[at..]);
    let mut paths = Vec::new();
    let mut text = rest.as_str();
    while let Some(start) = text.find(is_word) {
        let after = &text[start..];
        let end = after.find(|c| !is_word(c) && c != ':').unwrap_or(after.len());
        let segments = extended(&[], &after[..end]);
        if segments.len() > 1 && !text[..start].ends_with("::") {
            paths.push(segments);
        }
        text = &after[end..];
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let source =
            |(path, text): &(&str, &str)| Source { package: "core".into(), path: (*path).into(), text: (*text).into() };
        let sources: Vec<Source> = files.iter().map(source).collect();
        Files::new(&sources).circles().iter().map(|circle| circle.join(" ")).collect()
    }

    #[test]
    fn circles_are_found_through_re_exports_groups_and_parents() {
        let two = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B; struct A;"),
            ("b.rs", "use crate::a::A; struct B;"),
        ];
        assert_eq!(circles(&two), ["a.rs b.rs"]);
        let inline = [("a.rs", "fn a() { super::b::b() }"), ("b.rs", "fn b() { crate::a::a() }")];
        assert_eq!(circles(&inline), ["a.rs b.rs"]);
        let parent = [("a/mod.rs", "mod b; use b::B; struct A;"), ("a/b.rs", "use super::A; struct B;")];
        assert_eq!(circles(&parent), ["a/b.rs a/mod.rs"]);
        let handed_on = [
            ("lib.rs", "pub mod a; pub mod c;"),
            ("a/mod.rs", "mod b; pub use b::{B as Bee};"),
            ("a/b.rs", "use crate::c::C; struct B;"),
            ("c.rs", "use crate::a::Bee; struct C;"),
        ];
        assert_eq!(circles(&handed_on), ["a/b.rs c.rs"]);
    }

    #[test]
    fn doors_tests_and_arrows_one_way_are_no_circles() {
        let door = [
            ("lib.rs", "pub mod a;"),
            ("a/mod.rs", "mod b; mod c; pub use {b::B, c::C};"),
            ("a/b.rs", "use super::C; struct B;"),
            ("a/c.rs", "struct C;\n#[cfg(test)]\nmod tests { use super::super::B; }"),
            ("a/tests.rs", "use super::B;"),
        ];
        assert_eq!(circles(&door), Vec::<String>::new());
    }
}
