//! Rust source as the rules look at it: comments, strings and tests told apart from production code. Not a parser: it
//! knows just enough of the language to find where things begin and end, and keeps every line where it was.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// One file under `src`.
pub(crate) struct Source {
    /// Relative to the crate's root, with `/`.
    pub(crate) path: String,
    /// The same lines with comments and the insides of strings blanked, and without `#[cfg(test)]` items.
    pub(crate) code: String,
    /// The whole file is compiled for tests only.
    pub(crate) is_test: bool,
}

impl Source {
    /// The top-level module: `produce` for `src/produce/roll.rs`, `clock` for `src/clock.rs`.
    pub(crate) fn module(&self) -> &str {
        let inside = self.path.trim_start_matches("src/");
        inside.split(['/', '.']).next().unwrap_or(inside)
    }

    /// How many modules lie between this one and the crate's root: 1 for `produce`, 2 for `produce::roll`.
    pub(crate) fn depth(&self) -> usize {
        let inside = self.path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
        inside.split('/').count()
    }
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below a directory that is relative to the crate's root, in order.
pub(crate) fn files_below(directory: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join(directory)];
    while let Some(directory) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for path in entries.map(|entry| entry.expect("a directory can be read").path()) {
            let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
            if path.is_dir() {
                open.push(path);
            } else if extensions.contains(&extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

pub(crate) fn relative(path: &Path) -> String {
    path.strip_prefix(root()).expect("below the root").to_string_lossy().replace('\\', "/")
}

/// Everything under `src`, read once.
pub(crate) fn sources() -> &'static [Source] {
    static ALL: LazyLock<Vec<Source>> = LazyLock::new(read_sources);
    &ALL
}

fn read_sources() -> Vec<Source> {
    let files: Vec<(String, String)> = files_below("src", &["rs"])
        .into_iter()
        .map(|path| (relative(&path), std::fs::read_to_string(&path).expect("source is text")))
        .collect();
    let test_files: Vec<String> = files.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    assert!(files.len() > 50 && !test_files.is_empty(), "src was not found");
    files
        .into_iter()
        .map(|(path, text)| {
            let is_test = test_files.contains(&path);
            Source { code: without_tests(&blanked(&text)), path, is_test }
        })
        .collect()
}

/// The files that a file names with `#[cfg(test)] mod name;`.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    let directory = match path.strip_suffix("/mod.rs").or_else(|| path.strip_suffix("/lib.rs")) {
        Some(directory) => directory.to_owned(),
        None => path.trim_end_matches(".rs").to_owned(),
    };
    let mut found = Vec::new();
    let mut lines = text.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let next = lines.peek().copied().unwrap_or_default();
        let name = next.trim_start_matches("pub ").strip_prefix("mod ").and_then(|m| m.strip_suffix(';'));
        if let (true, Some(name)) = (line == "#[cfg(test)]", name) {
            found.push(format!("{directory}/{name}.rs"));
        }
    }
    found
}

/// Comments and the insides of string and character literals become spaces; line breaks stay.
pub(crate) fn blanked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (length, keep) = next_token(rest, out.chars().next_back());
        let (token, after) = rest.split_at(length.max(first.len_utf8()));
        if keep {
            out.push_str(token);
        } else {
            out.extend(token.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        }
        rest = after;
    }
    out
}

/// The length of what stands first, and whether it is code.
fn next_token(rest: &str, before: Option<char>) -> (usize, bool) {
    let to_end_of = |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), false);
    }
    if rest.starts_with("/*") {
        return (to_end_of("*/", 2), false);
    }
    let begins_a_word = !before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let raw = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r')).filter(|_| begins_a_word);
    if let Some(after) = raw {
        let hashes = after.len() - after.trim_start_matches('#').len();
        if after[hashes..].starts_with('"') {
            let start = rest.len() - after.len() + hashes + 1;
            return (to_end_of(&format!("\"{}", "#".repeat(hashes)), start), false);
        }
    }
    if rest.starts_with('"') {
        return (quoted(rest, '"'), false);
    }
    if rest.starts_with('\'') {
        // A character, or the name of a lifetime or a loop.
        let mut chars = rest.chars().skip(1);
        let (one, two) = (chars.next(), chars.next());
        if one == Some('\\') || two == Some('\'') {
            return (quoted(rest, '\''), false);
        }
    }
    (1, true)
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// Blanks every item that stands under `#[cfg(test)]`. Takes blanked code.
fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = code.to_owned();
    let mut done = 0;
    while let Some(start) = out[done..].find(MARK).map(|at| done + at) {
        done = start;
        let end = item_end(&out, start + MARK.len());
        let blank: String = out[start..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        out.replace_range(start..end, &blank);
    }
    out
}

/// Where the item ends that begins here: at its `;`, or at the end of its block.
pub(crate) fn item_end(code: &str, start: usize) -> usize {
    let mut depth = 0usize;
    for (at, c) in code[start..].char_indices().map(|(at, c)| (start + at, c)) {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The line number (from 1) of a place in a text.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// The words of a text with their places: runs of letters, digits and `_`.
pub(crate) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].find(is_word)?;
        let end = start + text[start..].find(|c| !is_word(c)).unwrap_or(text.len() - start);
        at = end;
        Some((start, &text[start..end]))
    })
}
