//! Tables for people: columns padded, numbers to the right.

/// A column's heading and whether its cells are numbers.
pub(super) struct Column(pub(super) &'static str, pub(super) Align);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Lays rows out under their headings.
pub(super) fn layout(columns: &[Column], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = columns.iter().map(|c| c.0.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(columns).zip(&widths).map(|((cell, column), width)| {
            let fill = " ".repeat(width.saturating_sub(cell.chars().count()));
            match column.1 {
                Align::Left => format!("{cell}{fill}"),
                Align::Right => format!("{fill}{cell}"),
            }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(columns.iter().map(|c| c.0).collect())];
    lines.extend(rows.iter().map(|row| line(row.iter().map(String::as_str).collect())));
    lines.join("\n")
}

/// Bytes in the unit that keeps the number short.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let columns = [Column("TOPIC", Align::Left), Column("SIZE", Align::Right)];
        let rows = [vec!["a".to_owned(), "1 B".to_owned()], vec!["longer".to_owned(), "10.0 KiB".to_owned()]];
        assert_eq!(layout(&columns, &rows), "TOPIC       SIZE\na            1 B\nlonger  10.0 KiB");
    }

    #[test]
    fn bytes_have_fitting_units() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
    }
}
