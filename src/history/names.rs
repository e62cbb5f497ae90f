//! Names as numbers: a history of millions of operations has few processes and keys.

use std::collections::HashMap;

#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    /// The number of a name, the same every time; numbers count from 0.
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).expect("fewer names than memory could hold");
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        number
    }

    pub(super) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("?", String::as_str)
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }
}
