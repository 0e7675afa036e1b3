//! Which directory each inotify watch is on: a tree of names, each kept once. Plain data; a hundred
//! thousand directories take some 10 MB.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A directory in the table.
pub type Node = u32;
const NONE: Node = Node::MAX;

struct Entry {
    parent: Node,
    watch: i32,
    /// A root's is its whole path.
    name: Box<OsStr>,
}

#[derive(Default)]
pub struct Table {
    entries: Vec<Entry>,
    free: Vec<Node>,
    by_watch: HashMap<i32, Node>,
    /// Each directory behind its parent.
    children: BTreeSet<(Node, Node)>,
}

impl Table {
    /// Adds a directory; a root, if it has no parent.
    pub fn insert(&mut self, parent: Option<Node>, name: &OsStr, watch: i32) -> Node {
        let entry = Entry { parent: NONE, watch, name: name.into() };
        let node = match self.free.pop() {
            Some(node) => {
                self.entries[node as usize] = entry;
                node
            }
            None => {
                self.entries.push(entry);
                // A kernel has watches for a few hundred million directories at the most.
                Node::try_from(self.entries.len() - 1).unwrap_or(NONE)
            }
        };
        self.by_watch.insert(watch, node);
        self.link(node, parent.unwrap_or(NONE));
        node
    }

    pub fn of_watch(&self, watch: i32) -> Option<Node> {
        self.by_watch.get(&watch).copied()
    }

    pub fn watch(&self, node: Node) -> i32 {
        self.entry(node).watch
    }

    /// Whether this is a directory of the table still.
    pub fn is_there(&self, node: Node) -> bool {
        self.by_watch.get(&self.entry(node).watch) == Some(&node)
    }

    pub fn len(&self) -> usize {
        self.by_watch.len()
    }

    pub fn watches(&self) -> impl Iterator<Item = i32> {
        self.by_watch.keys().copied()
    }

    pub fn is_root(&self, node: Node) -> bool {
        self.parent(node).is_none()
    }

    pub fn is_at(&self, node: Node, parent: Node, name: &OsStr) -> bool {
        let entry = self.entry(node);
        entry.parent == parent && &*entry.name == name
    }

    /// Whether `node` is `above` or below it.
    pub fn is_within(&self, node: Node, above: Node) -> bool {
        self.way_up(node).any(|passed| passed == above)
    }

    /// Puts a directory at another place, with all below it. The place must not be below it.
    pub fn put(&mut self, node: Node, parent: Node, name: &OsStr) {
        self.unlink(node);
        self.entry_mut(node).name = name.into();
        self.link(node, parent);
    }

    /// Removes a directory and all below it, and returns their watches.
    pub fn remove(&mut self, node: Node) -> Vec<i32> {
        self.unlink(node);
        let (mut watches, mut left) = (Vec::new(), vec![node]);
        while let Some(node) = left.pop() {
            for child in self.children(node) {
                self.children.remove(&(node, child));
                left.push(child);
            }
            let entry = self.entry_mut(node);
            entry.name = OsString::new().into();
            watches.push(entry.watch);
            self.free.push(node);
        }
        for watch in &watches {
            self.by_watch.remove(watch);
        }
        watches
    }

    /// Removes all below a directory, and returns their watches.
    pub fn remove_below(&mut self, node: Node) -> Vec<i32> {
        let mut watches = Vec::new();
        for child in self.children(node) {
            watches.extend(self.remove(child));
        }
        watches
    }

    /// The directory that a directory is in; `None` for a root.
    pub fn parent(&self, node: Node) -> Option<Node> {
        Some(self.entry(node).parent).filter(|parent| *parent != NONE)
    }

    /// The directory's path, as it begins with its root's.
    pub fn path(&self, node: Node) -> PathBuf {
        self.joined(self.way_up(node))
    }

    /// The directory's path below its root; empty for the root itself.
    pub fn relative(&self, node: Node) -> PathBuf {
        self.joined(self.way_up(node).filter(|node| !self.is_root(*node)))
    }

    fn joined(&self, way_up: impl Iterator<Item = Node>) -> PathBuf {
        let names: Vec<&OsStr> = way_up.map(|node| &*self.entry(node).name).collect();
        let bytes = names.iter().map(|name| name.as_bytes().len() + 1).sum();
        let mut path = PathBuf::with_capacity(bytes);
        names.iter().rev().for_each(|name| path.push(Path::new(name)));
        path
    }

    fn way_up(&self, node: Node) -> impl Iterator<Item = Node> {
        std::iter::successors(Some(node), |node| self.parent(*node))
    }

    fn children(&self, node: Node) -> Vec<Node> {
        self.children.range((node, 0)..=(node, NONE)).map(|(_, child)| *child).collect()
    }

    fn link(&mut self, node: Node, parent: Node) {
        self.entry_mut(node).parent = parent;
        if parent != NONE {
            self.children.insert((parent, node));
        }
    }

    fn unlink(&mut self, node: Node) {
        let parent = std::mem::replace(&mut self.entry_mut(node).parent, NONE);
        self.children.remove(&(parent, node));
    }

    fn entry(&self, node: Node) -> &Entry {
        &self.entries[node as usize]
    }

    fn entry_mut(&mut self, node: Node) -> &mut Entry {
        &mut self.entries[node as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directories come, move and go; their paths follow.
    #[test]
    fn paths_follow() {
        let mut table = Table::default();
        let name = OsStr::new;
        let root = table.insert(None, name("/r/s"), 1);
        let a = table.insert(Some(root), name("a"), 2);
        let b = table.insert(Some(root), name("b"), 3);
        let deep = table.insert(Some(a), name("deep"), 4);
        assert_eq!(table.path(deep), Path::new("/r/s/a/deep"));
        assert_eq!(table.relative(deep), Path::new("a/deep"));
        assert_eq!(table.relative(root), Path::new(""));
        table.put(a, b, name("c"));
        assert_eq!(table.path(deep), Path::new("/r/s/b/c/deep"));
        assert!(table.is_within(deep, b) && !table.is_within(b, deep));
        let mut gone = table.remove(b);
        gone.sort_unstable();
        assert_eq!(gone, [2, 3, 4]);
        assert_eq!((table.len(), table.of_watch(4), table.of_watch(1)), (1, None, Some(root)));
        let again = table.insert(Some(root), name("b"), 9);
        assert_eq!(table.path(again), Path::new("/r/s/b"));
        assert_eq!(table.remove(root).len(), 2);
    }
}
